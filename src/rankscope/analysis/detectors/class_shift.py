"""Finds a change of the classes that a rank trains on, in the middle of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.orders import Shift, mixing, shift
from rankscope.analysis.reading import Pass, counts, labels, training_passes
from rankscope.analysis.stacks import Place
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import BatchLabels

FAR = 0.2
"""Share of the labels that have to be others: a fifth of the data is more than classes are rebalanced by."""
MIXED = 0.9
"""On each side labels of a batch differ so often as any labels of that side: one change, no order. Less by noise."""
NOISY = 3.0
"""Times the mean distance of two random parts: the largest one, over all divisions of a run, is below twice that."""


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    dataset: str
    place: Place | None
    path: str
    shift: Shift
    step: int
    last_step: int
    batches: int


class ClassShift(Detector):
    """The distribution of classes changes in the middle of the run.

    ## What it is
    From some step on the labels of a loader are others, or come in other shares: a second source, a filter that fails,
    shards of one kind at the end.

    ## What shows it
    Counts of labels, batch by batch: one step divides them into two parts that differ far beyond noise, each of which
    is even in itself.

    ## What else looks like it
    Data that is read class by class changes all the time (`unshuffled-data`). Another loader for another task. Small
    batches, whose shares vary by chance.

    ## What to do
    Look at what the dataset reads from that step on; mix sources over the whole run.
    """

    name = "class-shift"
    needs = (BatchLabels,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        examined, found = 0, []
        for position in range(facts.size):
            for all_of in _by_loader(training_passes(facts, position)):
                known = [labels(facts, position).get((one.loader, one.number)) for one in all_of]
                rows = [part for part in known if part is not None]
                if not rows:
                    continue
                joined = np.concatenate(rows)
                joined = joined[np.argsort(joined["time_ns"], kind="stable")]
                table = counts(joined)
                change = shift(table)
                if change is None:
                    continue
                examined += 1
                if change.distance >= max(FAR, NOISY * change.noise) and _even(table, change.at):
                    path = facts.tables.name(facts.ranks[position].pid, int(joined["name"][0]))
                    found.append(
                        _Found(
                            position, all_of[0].dataset, all_of[0].place, path, change, int(joined["step"][change.at]),
                            int(joined["step"][-1]), len(joined),
                        )
                    )  # fmt: skip
        if not examined:
            raise CannotExamine("no training loader with class labels gave enough batches")
        if not found:
            return
        first = found[0]
        positions = tuple(sorted({f.position for f in found}))
        where = f" ({first.path})" if first.path and not first.path.isdigit() else ""
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.85,
            title=f"the classes of {first.dataset}{where} change at step {first.step}"
            f" on {wording.ranks(facts, positions)}: {wording.percent(first.shift.distance)} of the labels are others",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=first.dataset,
            location=wording.location(first.place),
            first_step=min(f.step for f in found),
            last_step=first.last_step,
            cost=Cost(None, None, None),
            evidence=tuple(
                Evidence(
                    f"labels that would have to be others for both sides of step {f.step} to be alike, of "
                    f"{f.batches} batches",
                    f.shift.distance, "share", facts.numbers((f.position,)),
                )
                for f in found[:4]
            ),
            next=("look at what the dataset reads from that step on", "mix the sources over the whole run"),
        )  # fmt: skip


def _by_loader(found: tuple[Pass, ...]) -> list[list[Pass]]:
    """Passes of one loader object: each task of a sequence of tasks has its own."""
    return [[one for one in found if one.loader == loader] for loader in dict.fromkeys(one.loader for one in found)]


def _even(table: np.ndarray[tuple[int, int], np.dtype[np.int64]], at: int) -> bool:
    """Whether the classes are well mixed on each side of the change, and the whole is not read class by class."""
    whole = mixing(table)
    if whole is None or whole.ordered:
        return False
    for side in (table[:at], table[at:]):
        mixed = mixing(side)
        if mixed is not None and (mixed.ordered or mixed.within < MIXED - 3 * mixed.noise):
            return False
    return True
