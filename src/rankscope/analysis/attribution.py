"""Every millisecond of a step, charged to the rank and phase that made the run wait.

From the rank that ended the step last, backwards: its own work is charged to it; where it waited for a collective, the
walk goes on at the rank that entered that collective last. What remains of the wait after that is the transfer. The
pieces of a step add up to it exactly, because the walk covers the time from the end of the step before to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching import Matches
from rankscope.analysis.timeline import Timeline

PIECE = np.dtype(
    [("step", "i4"), ("rank", "i4"), ("segment", "i4"), ("start", "i8"), ("end", "i8"), ("transfer", "i1")]
)
"""A piece of a step, `start` to `end` in ns. `rank` is a position in the list of timelines; `segment` an index into its
segments, -1: before the first. `transfer`: 1 where communication itself took the time, with all ranks present."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The walk over every step of the window."""

    pieces: NDArray[np.void]
    """PIECE rows, newest first within a step."""
    steps: NDArray[np.int64]
    """Step numbers, rising."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    """The window of each step: from the last end of the step before to the last end of this one, over all ranks."""

    def step_ns(self) -> NDArray[np.int64]:
        """Duration of each step for the whole run."""
        return self.end - self.start


def attribute(
    timelines: Sequence[Timeline], matches: Matches, steps: NDArray[np.int64], ends: NDArray[np.int64]
) -> Attribution:
    """Walk every step. `ends[rank position, i]` is when it ended `steps[i]`; the first one only sets the start."""
    latest = ends.max(axis=0)
    last = ends.argmax(axis=0)
    pieces: list[tuple[int, int, int, int, int, int]] = []
    walker = _Walker(timelines, matches)
    for i in range(1, len(steps)):
        begin, end = int(latest[i - 1]), int(latest[i])
        if end > begin:
            walker.walk(int(steps[i]), int(last[i]), begin, end, pieces)
    return Attribution(np.array(pieces, PIECE), steps[1:], latest[:-1], latest[1:])


class _Walker:
    def __init__(self, timelines: Sequence[Timeline], matches: Matches) -> None:
        # Lists: reading single numbers from numpy arrays is what such a walk would spend its time on.
        self.starts = [t.segments["start"].astype(np.int64) for t in timelines]
        self.start_lists = [s.tolist() for s in self.starts]
        self.collective = [t.segments["collective"].tolist() for t in timelines]
        self.last_rank = [a.tolist() for a in matches.last_rank]
        self.last_enter = [a.tolist() for a in matches.last_enter]

    def walk(
        self, step: int, rank: int, begin: int, end: int, pieces: list[tuple[int, int, int, int, int, int]]
    ) -> None:
        now = end
        index = self._before(rank, now)
        while now > begin:
            if index < 0:
                pieces.append((step, rank, -1, begin, now, 0))
                return
            start = max(self.start_lists[rank][index], begin)
            collective = self.collective[rank][index]
            if collective >= 0:
                other, entered = self.last_rank[rank][collective], self.last_enter[rank][collective]
                if other >= 0 and other != rank and start < entered <= now:
                    if entered < now:
                        pieces.append((step, rank, index, entered, now, 1))
                    now, rank = entered, other
                    index = self._before(rank, now)
                    continue
                pieces.append((step, rank, index, start, now, 1))
            else:
                pieces.append((step, rank, index, start, now, 0))
            now = start
            index -= 1

    def _before(self, rank: int, time_ns: int) -> int:
        """The last segment that starts before a moment."""
        return int(np.searchsorted(self.starts[rank], time_ns, side="left")) - 1
