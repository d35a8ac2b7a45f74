"""Finds checkpoints that are taken over without the data position, the optimizer or the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import Pass, training_passes
from rankscope.analysis.restores import Restore, restores
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import Inputs
from rankscope.records.loading import BatchWait
from rankscope.records.training import Backward, Call, OptimizerStep

FEWEST_BATCHES = 2
"""At the start of two passes that are the same: one alone may be all that there is."""
AGAIN = 8
"""Steps after it in which inputs are compared."""
FEWEST_INPUTS = 2
"""Of these that must be equal to those of the first steps, each another one than the others."""
EXACT, MOVED = 1e-6, 0.01
"""Relative difference of learning rates that are the same, and of those that a schedule has moved apart."""


@dataclass(frozen=True, slots=True)
class _Break:
    """One thing that did not come back."""

    what: str
    text: str
    value: float
    unit: str
    confidence: float


class ResumeDiscontinuity(Detector):
    """After resuming, the data position, the optimizer or the schedule is not where it was.

    ## What it is
    A checkpoint holds the model, but not where the data was, what the optimizer had gathered, or where the schedule
    stood; or it holds them, and they are not loaded. The samples of the epoch's beginning are seen twice and those of
    its end never, moments start from zero, the learning rate jumps.

    ## What shows it
    In one process: the first batches after the state was taken over are those with which the interrupted pass had
    begun, and are trained on; the learning rate is the first step's again. From a file: it holds an optimizer's state
    that no optimizer takes over, though the process goes on writing that file.

    ## What else looks like it
    Batches that are skipped until the position is reached. A checkpoint from the end of an epoch. Fine-tuning from
    somebody else's checkpoint, which wants the weights alone. Several trainings in one process that start from the same
    file. Best weights that are loaded for an evaluation.

    ## What to do
    Save and load the sampler's position (torchdata's StatefulDataLoader, or skip batches), the optimizer, the scheduler
    and the random states together with the model.
    """

    name = "resume-discontinuity"
    needs = (Call, OptimizerStep)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not any(restores(facts, position) for position in range(facts.size)):
            raise CannotExamine("no checkpoint was taken over")
        found = {
            position: (restore, breaks)
            for position in range(facts.size)
            for restore in restores(facts, position)
            if (breaks := list(_breaks(facts, position, restore)))
        }
        if not found:
            return
        positions = tuple(sorted(found))
        restore, breaks = found[positions[0]]
        what = " and ".join(one.what for one in breaks)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=max(one.confidence for one in breaks),
            title=f"the checkpoint loaded at step {restore.step} does not bring back {what}{wording.at(restore.place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component=f"resume: {what}",
            location=wording.location(restore.place),
            first_step=restore.step,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=tuple(Evidence(one.text, one.value, one.unit, facts.numbers(positions)) for one in breaks),
            next=(
                "save and load sampler position, optimizer and scheduler together with the model",
                "after loading, compare learning rate and next sample index with those at the time of saving",
            ),
        )


def _breaks(facts: Facts, position: int, restore: Restore) -> Iterator[_Break]:
    steps = facts.rows(OptimizerStep, position, window=False)
    after = steps[steps["time_ns"] > restore.time_ns]
    if not len(after):
        return  # loaded to be evaluated
    if restore.optimizer or restore.optimizer_in_file:  # else weights alone are wanted: another training begins
        yield from _data(facts, position, restore)
        yield from _schedule(steps, after, restore)
    yield from _optimizer(restore)


def _data(facts: Facts, position: int, restore: Restore) -> Iterator[_Break]:
    """The pass after it begins with the batches of the pass that was interrupted, and trains on them."""
    all_of = training_passes(facts, position)
    later = [one for one in all_of if one.begin_ns > restore.time_ns]
    saved_ns = restore.saved_ns or restore.time_ns
    earlier = [one for one in all_of if one.begin_ns < saved_ns and (not later or one.dataset == later[0].dataset)]
    if not restore.step or not later or not earlier:
        if restore.step and not all_of:
            yield from _inputs(facts, position, restore)
        return
    first, second = earlier[-1], later[0]
    if _ended(facts, position, first, saved_ns):
        return
    read = int((first.batches["time_ns"] < saved_ns).sum())
    count = _alike(first, second)
    if count < FEWEST_BATCHES or read < FEWEST_BATCHES or not _trained_on(facts, position, second, count):
        return
    yield _Break(
        "the data position",
        f"first batches after it that are those of step {first.steps[0]}; {read} had been read when it was saved",
        float(count), "count", 0.93,
    )  # fmt: skip


def _inputs(facts: Facts, position: int, restore: Restore) -> Iterator[_Break]:
    """The same of a program without a DataLoader, as far as the inputs of its forwards were looked at."""
    rows = facts.rows(Inputs, position, window=False)
    prints = dict(zip(rows["step"].tolist(), rows["a"].tolist(), strict=True))
    after = [step for step in prints if restore.step <= step < restore.step + AGAIN]
    same = [step for step in after if prints.get(step - restore.step) == prints[step]]
    if len(same) >= FEWEST_INPUTS and len({prints[step] for step in same}) == len(same) == len(after):
        text = f"inputs looked at after it, all of them equal to those of step {same[0] - restore.step} and the next"
        yield _Break("the data position", text, float(len(same)), "count", 0.85)


def _ended(facts: Facts, position: int, one: Pass, until_ns: int) -> bool:
    """Whether a pass had come to its end before a moment."""
    waits = facts.rows(BatchWait, position, window=False)
    mine = waits[(column(waits, BatchWait, "ended") == 1) & (column(waits, BatchWait, "loader") == one.loader)]
    return bool(((mine["time_ns"] > one.end_ns) & (mine["time_ns"] < until_ns)).any())


def _alike(first: Pass, second: Pass) -> int:
    """How many batches the second pass begins with that are the first one's, by index and content as far as known."""
    orders = first.of("order"), second.of("order")
    prints = first.of("fingerprint"), second.of("fingerprint")
    count = 0
    for i in range(min(len(first.batches), len(second.batches))):
        same = orders[0][i] == orders[1][i] if orders[0][i] else prints[0][i] == prints[1][i] != 0
        if not same or first.of("ordinal")[i] != i or second.of("ordinal")[i] != i:
            break
        count += 1
    return count if len(set((orders[0] + (prints[0] << 32))[:count].tolist())) >= FEWEST_BATCHES else 0


def _trained_on(facts: Facts, position: int, one: Pass, count: int) -> bool:
    backwards = np.sort(facts.rows(Backward, position, window=False)["time_ns"].astype(np.int64))
    times = one.batches["time_ns"][:count].astype(np.int64)
    return bool((np.diff(np.searchsorted(backwards, times)) > 0).all())


def _optimizer(restore: Restore) -> Iterator[_Break]:
    if restore.optimizer or not restore.optimizer_in_file:
        return
    resumes = restore.saved_step is not None if restore.step else restore.saves_again
    if resumes:
        text = "states of optimizers that were taken over, though the file holds them"
        yield _Break("the optimizer's state", text, 0.0, "count", 0.8 if restore.step else 0.65)


def _schedule(steps: Rows, after: Rows, restore: Restore) -> Iterator[_Break]:
    """The learning rate is the first step's again, which the schedule had left when the file was written."""
    known = steps[steps["time_ns"] < (restore.saved_ns or restore.time_ns)]
    if not restore.step or not len(known):
        return
    start, saved, now = (float(column(rows, OptimizerStep, "lr")[0]) for rows in (steps[:1], known[-1:], after[:1]))
    if not start or not np.isfinite([start, saved, now]).all():
        return
    if abs(now / start - 1) < EXACT and abs(saved / start - 1) > MOVED:
        yield _Break(
            "the schedule", f"learning rate after it; {saved:.3g} when it was saved, {start:.3g} in the first step",
            now, "", 0.85,
        )  # fmt: skip
