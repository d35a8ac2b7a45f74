"""Where the steps of a training, or the calls of an inference, end in a history of allocations."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.sites import BACKWARD, FORWARD, OPTIMIZER, ZERO_GRAD, Sites
from rankscope.records.imported.memory_snapshot import ALLOC, FREE_REQUESTED, MemorySnapshot

Ints = NDArray[np.int64]

FEWEST: Final = 3
"""Ends that one way has to find before it is believed."""
POINTS: Final = 20_000
"""To which a curve is reduced before it is walked through."""
SWING: Final = 0.4
"""Of the largest fall, what a fall and a rise have to reach to be a step's: parts of a step go up and down as well."""


def step_ends(snapshot: MemorySnapshot, lives: Lifetimes, sites: Sites) -> tuple[Ints, str]:
    """(events at which a step ends, by what they were found): the optimizer's stacks, the user's marks, or the rise and
    fall of what is held."""
    used = (snapshot.action == ALLOC) | (snapshot.action == FREE_REQUESTED)
    parts = np.where(used, sites.parts[snapshot.stack], 0)
    work = (parts & (FORWARD | BACKWARD)) > 0
    for bit, name in ((OPTIMIZER, "optimizer steps"), (ZERO_GRAD, "calls of zero_grad")):
        found = _changes(work & ((parts & (OPTIMIZER | ZERO_GRAD)) == 0), (parts & bit) > 0)
        if len(found) >= FEWEST or (bit == OPTIMIZER and len(found)):
            return found, name
    marks = [t for t, name, starts in zip(
        snapshot.annotation_time_ns.tolist(), snapshot.annotation_name, snapshot.annotation_starts.tolist(), strict=True
    ) if starts and name.startswith("ProfilerStep")]  # fmt: skip
    if len(marks) >= FEWEST and len(snapshot.time_ns) and snapshot.time_ns[0] >= 0:
        found = np.searchsorted(snapshot.time_ns, np.array(marks, np.int64))
        return found[(found > 0) & (found < lives.num_events)], "ProfilerStep marks"
    return valleys(lives.held), "rises and falls of what is held"


def _changes(work: NDArray[np.bool_], ends: NDArray[np.bool_]) -> Ints:
    """The first event of `ends` after some of `work`, each time."""
    at = np.flatnonzero(work | ends)
    is_end = ends[at]
    first = is_end.copy()
    first[1:] &= ~is_end[:-1]
    if len(first):
        first[0] = False
    found: Ints = at[first]
    return found


def valleys(held: Ints) -> Ints:
    """[step] the lowest points between large falls and large rises of what is held."""
    if len(held) < 4:
        return np.zeros(0, np.int64)
    width = max(1, len(held) // POINTS)
    count = len(held) // width
    pieces = held[: count * width].reshape(count, width)
    # Of each piece its lowest and its highest point, in their order.
    low, high = pieces.argmin(axis=1), pieces.argmax(axis=1)
    offsets = np.arange(count) * width
    at = np.unique(np.concatenate([offsets + low, offsets + high]))
    values = held[at]
    fall = int((np.maximum.accumulate(values) - values).max())
    if fall <= 0:
        return np.zeros(0, np.int64)
    least = SWING * fall
    found: list[int] = []
    falling, extreme = False, 0
    for i, value in enumerate(values.tolist()):
        if falling:
            if value < values[extreme]:
                extreme = i
            elif value - values[extreme] >= least:
                found.append(int(at[extreme]))
                falling, extreme = False, i
        elif value > values[extreme]:
            extreme = i
        elif values[extreme] - value >= least:
            falling, extreme = True, i
    return np.array(found, np.int64)
