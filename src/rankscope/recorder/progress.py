"""Whether the ranks get on, by the run's own rhythm, from the records that they write anyway."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from rankscope.records.host import NO_PROGRESS
from rankscope.records.training import Step

LOOK_NS = 5_500_000_000
"""A rank that wrote nothing for so long is looked at: half of the 10 s after which a user is told."""
LOOK_STEPS = 10.0
"""Nor before so many typical steps have passed."""
AGAIN = 2.0
"""The next look at the same stall comes when it is so many times as old."""
PAUSE_NS = 3_000_000_000
"""Longer than any tick: so much later than the one before, the recorder itself had been stopped, or the machine."""
LONGER = 1.1
"""A stall that is so many times as long as any that ended by itself is no pause of this run's kind."""
REMEMBERED = 64
_SILENT = np.array([kind.code for kind in NO_PROGRESS])


class Progress:
    """Fed with all new slots of the ranks; says when a stall should be looked at."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._steps: deque[int] = deque(maxlen=REMEMBERED)
        self._next_ns = 0
        self._ticked_ns = 0
        self._age_ns = 0
        """Of the stall that goes on."""
        self._training = False
        """A step had been finished before it."""
        self._longest_ns = 0
        """Of those that ended by themselves after the first step: checkpoints, evaluations. A look at each of them
        would cost the ranks more CPU time than all else."""

    def tick(self, now: int) -> None:
        """The recorder comes by. Where it did not for long, the ranks may not have run either: that time is not
        theirs."""
        pause = now - self._ticked_ns
        if self._ticked_ns and pause > PAUSE_NS:
            self._last = {pid: moved + pause for pid, moved in self._last.items()}
        self._ticked_ns = now

    def moved(self, pid: int) -> int:
        """When a rank got on last; 0: never."""
        return self._last.get(pid, 0)

    def note(self, pid: int, slots: NDArray[np.void]) -> None:
        """New slots of a rank."""
        kinds = slots["kind"]
        moved = ~np.isin(kinds, _SILENT)
        if moved.any():
            ends = slots["time_ns"][moved].astype(np.int64) + slots["duration_ns"][moved].astype(np.int64)
            self._last[pid] = max(self._last.get(pid, 0), int(ends.max()))
            self._steps.extend(slots["duration_ns"][kinds == Step.code].tolist())

    def due(self, now: int, alive: Iterable[int]) -> bool:
        """Whether one of the running ranks has been without progress long enough to be looked at (again)."""
        ages = [now - self._last[pid] for pid in alive if pid in self._last]
        typical = median(self._steps) if self._steps else 0.0
        oldest = max(ages, default=0)
        if oldest < self._age_ns and self._age_ns >= LOOK_NS and self._training:
            self._longest_ns = max(self._longest_ns, self._age_ns)
        self._age_ns, self._training = oldest, bool(self._steps)
        if oldest < max(LOOK_NS, LOOK_STEPS * typical, LONGER * self._longest_ns):
            self._next_ns = 0
            return False
        if oldest < self._next_ns:
            return False
        self._next_ns = int(oldest * AGAIN)
        return True
