"""Who comes late to collectives, and what the others lose by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.collectives import ALL_WAIT
from rankscope.analysis.imported.device_traces.matching import Matched

SHARE: Final = 0.05
"""Of the window, below which waiting is the jitter that every job has."""
CLEARLY: Final = 3
"""Times the lateness of any rank that is not accused."""
LEAST_CALLS: Final = 3
"""Calls at least to which a rank must have come late: fewer happen by chance."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one process group."""

    group: Matched
    lost_ns: NDArray[np.int64]
    """[rank] what all the others waited for it, counted once a call: how much sooner the call would have begun
    without."""
    last_to_come: NDArray[np.int64]
    """[rank] calls to which it came last, or among the last few."""
    window_ns: int
    """From the first matched call to the last."""
    late: tuple[int, ...]
    """Rows of the ranks that are late, beyond doubt; mostly none."""

    @property
    def total_ns(self) -> int:
        return int(self.lost_ns.sum())


def lateness_of(groups: Sequence[Matched]) -> list[Lateness]:
    """Worked out from durations alone, so that clocks do not matter: who comes last waits least. Groups with most
    lost time first."""
    found = [one for group in groups if (one := _lateness(group)) is not None]
    return sorted(found, key=lambda one: -one.total_ns)


def _lateness(group: Matched) -> Lateness | None:
    calls = np.array([one in ALL_WAIT for one in group.operation])
    if not calls.any():
        return None
    duration = group.duration[:, calls]
    ranks = len(group.members)
    order = np.argsort(duration, axis=0, kind="stable")
    sizes = np.take_along_axis(duration, order, axis=0)
    # The widest step in the sorted durations, with the minority below it: those came late, by that much.
    steps = np.diff(sizes, axis=0)[: ranks // 2]
    widest = steps.argmax(axis=0)
    lost = np.zeros(ranks, np.int64)
    times = np.zeros(ranks, np.int64)
    for call, at in enumerate(widest.tolist()):
        gap = int(steps[at, call])
        rows = order[: at + 1, call]
        lost[rows] += gap
        if gap > 0:
            times[rows] += 1
    window = max(1, int(group.end[0, -1] - group.start[0, 0]))
    return Lateness(group, lost, times, window, _accused(lost.tolist(), times.tolist(), window))


def _accused(lost: list[int], times: list[int], window: int) -> tuple[int, ...]:
    """The minority that lost clearly more than all others, and more than `SHARE`; where several cuts would do, the
    clearest."""
    order = sorted(range(len(lost)), key=lambda row: -lost[row])
    best, clearest = 0, float(CLEARLY)
    for count in range(1, len(lost) // 2 + 1):
        least, next_one = order[count - 1], order[count]
        if lost[least] < SHARE * window or times[least] < LEAST_CALLS:
            break
        ratio = lost[least] / max(1, lost[next_one])
        if ratio >= clearest:
            best, clearest = count, ratio
    return tuple(sorted(order[:best]))
