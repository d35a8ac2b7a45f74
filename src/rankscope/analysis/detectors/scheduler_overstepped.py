"""Finds learning-rate schedules that run too fast, or that are over long before the run is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import weights
from rankscope.analysis.wiring import finding
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Finding, Severity
from rankscope.records.training import OptimizerStep, Step
from rankscope.records.wiring import SchedulerStat

OFTEN = 1.5
"""Steps of a schedule for each of its optimizer: one is usual, a whole number above it is the fault."""
FEWEST_STEPS = 4
"""Of the optimizer, between the first and the last look at a schedule."""
BEYOND = 1.1
"""Steps that a schedule may go beyond its end: run lengths are rounded."""
NOTHING = 1e-5
"""Of the highest rate: with less the weights stay where they are, in proportion to what the run did before."""
TAIL, TAIL_STEPS = 0.2, 10
"""Part of a run without a rate to speak of that is a long one, and its fewest steps."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    position: int
    name: str
    optimizer: int
    ratio: float
    """Steps of the schedule for one of the optimizer."""
    steps: int
    """Of the schedule at the end of the run."""
    horizon: int
    first_step: int


class SchedulerOverstepped(Detector):
    """The learning-rate schedule advances more often than the optimizer, or is over long before the run.

    ## What it is
    `scheduler.step()` in two places, in the loop over micro-batches, or once for each process in a wrapper; or a
    schedule made for fewer steps than the run has. The rate falls too fast, and the rest of the run learns nothing.

    ## What shows it
    The schedule's own count of steps beside its optimizer's, and where it then ends; a rate that is next to zero for a
    large part at the end of the run.

    ## What else looks like it
    A schedule that counts in micro-batches, or in steps of all processes, and ends with the run, is consistent. One
    that steps once an epoch, restarts, or ends in a constant minimum is no fault.

    ## What to do
    One `scheduler.step()` after each `optimizer.step()`, and a length in the same unit.
    """

    name = "scheduler-overstepped"
    needs = (OptimizerStep,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        fast = [one for position in range(facts.size) for one in _fast(facts, position)]
        for name, optimizer in dict.fromkeys((one.name, one.optimizer) for one in fast):
            mine = [one for one in fast if (one.name, one.optimizer) == (name, optimizer)]
            yield self._too_fast(facts, mine)
        if fast:
            return
        ended = {p: at for p in range(facts.size) if (at := _ends_early(facts, p)) is not None}
        if ended:
            yield self._too_short(facts, ended)

    def _too_fast(self, facts: Facts, mine: list[_Schedule]) -> Finding:
        first = mine[0]
        over = f": it is over after {percent(first.horizon / first.steps)} of the run" if first.horizon else ""
        evidence = [
            Evidence("steps of the schedule for each step of the optimizer", first.ratio, "x"),
            Evidence("steps of the schedule at the end of the run", float(first.steps), "count"),
        ]
        if first.horizon:
            evidence.append(Evidence("steps that the schedule has", float(first.horizon), "count"))
        processes = round(first.ratio) == facts.world_size > 1
        return finding(
            facts,
            self.name,
            [one.position for one in mine],
            f"{first.name} steps {first.ratio:.1f} times for each step of the optimizer{over}",
            severity="warning",
            confidence=0.9 if first.horizon else 0.75,
            component=f"learning-rate schedule {first.name}",
            phase="optimizer",
            first_step=first.first_step,
            evidence=evidence,
            next=(
                "call `scheduler.step()` once after each `optimizer.step()`",
                "a wrapper steps it once for each process: then its length must be in that unit"
                if processes else "look for a second call, or for one in the loop over micro-batches",
            ),
        )  # fmt: skip

    def _too_short(self, facts: Facts, ended: dict[int, tuple[int, float, bool]]) -> Finding:
        step, share, zero = ended[min(ended)]
        severity: Severity = "critical" if zero else "warning"
        return finding(
            facts,
            self.name,
            sorted(ended),
            f"the learning rate is {'zero' if zero else 'next to zero'} from step {step} on: the last"
            f" {percent(share)} of the run learns nothing",
            severity=severity,
            confidence=0.9,
            component="learning-rate schedule",
            phase="optimizer",
            first_step=step,
            evidence=(Evidence("steps at the end with a rate next to zero", share, "share"),),
            next=("make the schedule as long as the run", "or end the run with it"),
        )


def _fast(facts: Facts, position: int) -> Iterator[_Schedule]:
    pid = facts.ranks[position].pid
    rows = facts.rows(SchedulerStat, position, window=False)
    numbers = column(rows, SchedulerStat, "number")
    for number in np.unique(numbers).tolist():
        mine = rows[numbers == number]
        scheduled = column(mine, SchedulerStat, "scheduled").astype(np.float64)
        stepped = column(mine, SchedulerStat, "stepped").astype(np.float64)
        if stepped[-1] - stepped[0] < FEWEST_STEPS:
            continue
        # By differences: a schedule that was restored begins with the count that it had.
        ratio = (scheduled[-1] - scheduled[0]) / (stepped[-1] - stepped[0])
        if ratio < OFTEN:
            continue
        optimizer = int(column(mine, SchedulerStat, "optimizer")[0])
        rates = _rates(facts, position, optimizer)
        after = int((rates[0] > int(mine["step"][-1])).sum()) + 1
        steps = int(scheduled[-1] + ratio * after)
        horizon = int(column(mine, SchedulerStat, "horizon")[0])
        if horizon and steps <= BEYOND * horizon:
            continue
        meant = column(mine, SchedulerStat, "accelerated").any() and round(ratio) == facts.world_size
        if not horizon and (meant or _is_consistent(facts, position, ratio, rates[1])):
            continue
        name = facts.tables.name(pid, int(mine["name"][0]))
        ahead = np.flatnonzero(scheduled - scheduled[0] >= OFTEN * np.maximum(stepped - stepped[0], 1))
        first = int(mine["step"][ahead[0]]) if len(ahead) else int(mine["step"][0])
        yield _Schedule(position, name, optimizer, float(ratio), steps, horizon, first)


def _is_consistent(facts: Facts, position: int, ratio: float, rates: NDArray[np.float64]) -> bool:
    """Whether a schedule without a known end may count in another unit: in micro-batches, or so that it ends with the
    run."""
    counts = column(facts.rows(Step, position, window=False), Step, "micro_batches")
    if len(counts) and round(ratio) == np.median(counts) > 1:
        return True
    if not len(rates) or rates.max() <= 0:
        return True
    low = rates <= 1e-2 * rates.max()
    return bool(low[-1]) and float(low.mean()) < TAIL


def _rates(facts: Facts, position: int, optimizer: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(steps, learning rates) of one optimizer."""
    rows = facts.rows(OptimizerStep, position, window=False)
    rows = rows[column(rows, OptimizerStep, "optimizer") == optimizer]
    rates = column(rows, OptimizerStep, "lr")
    good = np.isfinite(rates)
    return rows["step"][good].astype(np.int64), rates[good]


def _ends_early(facts: Facts, position: int) -> tuple[int, float, bool] | None:
    """(first step, share of the run, whether the rate is exactly zero) of a long end without a learning rate, where
    all optimizers of the rank have come to it."""
    numbers = np.unique(column(facts.rows(OptimizerStep, position, window=False), OptimizerStep, "optimizer"))
    found: tuple[int, float, bool] | None = None
    for number in numbers.tolist():
        steps, rates = _rates(facts, position, number)
        if not len(rates) or rates.max() <= 0:
            return None
        loud = np.flatnonzero(rates > NOTHING * rates.max())
        begin = int(loud[-1]) + 1
        count = len(rates) - begin
        if count < max(TAIL_STEPS, TAIL * len(rates)):
            return None
        here = int(steps[begin]), count / len(rates), bool((rates[begin:] == 0).all())
        found = max(found, here) if found is not None else here
    if found is not None and found[2] and _changes_after(facts, position, found[0]):
        return None  # other groups have a rate of their own
    return found


def _changes_after(facts: Facts, position: int, step: int) -> bool:
    return any(
        (s.of(position, "changed")[s.steps >= step] * s.of(position, "held")[s.steps >= step]).any()
        for s in weights(facts).values()
        if position in s.positions
    )
