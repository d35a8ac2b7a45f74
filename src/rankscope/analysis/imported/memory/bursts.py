"""One step that allocates the same things as the others, only larger."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.sites import FORWARD, Sites
from rankscope.records.imported.memory_snapshot import Frame

Ints = NDArray[np.int64]

FEWEST: Final = 4
"""Other steps to compare with."""
LARGER: Final = 1.3
"""From which on an allocation counts as larger than all of the same line in other steps."""
MOST: Final = 0.5
"""Of the step's bytes in lines that other steps have as well, the share that has to be larger."""
FEWEST_SITES: Final = 3
"""A longer sample makes every layer's tensors larger; a workspace that a library tries out is one line."""
OUTSTANDING: Final = 2.0
"""Of the second highest step, above what all steps hold, what the highest has to reach, where nothing failed."""


@dataclass(frozen=True, slots=True)
class Burst:
    step: int
    """Counted from the first one in the history."""
    ratio: float
    """The median of how many times larger its allocations are than the largest of the same line in other steps."""
    bytes: int
    """Its peak above what is held between steps."""
    usual_bytes: int
    """The median of the others'."""
    place: str
    location: Frame | None


def burst(lives: Lifetimes, sites: Sites, ends: Ints, failed_at: int | None) -> Burst | None:
    """The step that failed, or else that of the peak, if it stands out and allocates what others do, only larger."""
    bounds = np.concatenate([[0], ends, [lives.num_events if failed_at is None else failed_at]])
    bounds = bounds[: np.searchsorted(bounds, bounds[-1]) + 1]
    steps = len(bounds) - 1
    if steps < FEWEST + 1:
        return None
    floor = int(np.median(lives.held[np.minimum(bounds[1:-1], lives.num_events - 1)]))
    peaks = np.array([lives.held[a:b].max() if b > a else 0 for a, b in pairwise(bounds.tolist())]) - floor
    which = steps - 1 if failed_at is not None else int(np.argmax(peaks))
    others = np.delete(peaks, which)
    if failed_at is None and peaks[which] < OUTSTANDING * max(1, int(others.max())):
        return None
    found = _larger(lives, sites, bounds, which)
    if found is None:
        return None
    ratio, stack = found
    site = sites[stack]
    return Burst(which, ratio, int(peaks[which]), int(np.median(others)), site.text, site.user or site.place)


def _larger(lives: Lifetimes, sites: Sites, bounds: Ints, which: int) -> tuple[float, int] | None:
    """(how many times larger, the line of the largest) where most of the step is the others', larger."""
    mine = (lives.stack >= 0) & (lives.start >= 0) & (lives.start < bounds[-1])
    stack, size = lives.stack[mine], lives.size[mine]
    step = np.searchsorted(bounds, lives.start[mine], side="right") - 1
    here = step == which
    count = int(stack.max()) + 1 if len(stack) else 0
    if not here.any() or not count:
        return None
    usual, now = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.maximum.at(usual, stack[~here], size[~here])
    np.maximum.at(now, stack[here], size[here])
    both = np.flatnonzero((usual > 0) & (now > 0) & ((sites.parts[:-1][:count] & FORWARD) > 0))
    if not len(both):
        return None
    ratios = now[both] / usual[both]
    larger = ratios >= LARGER
    lines = {sites[stack_].place for stack_ in both[larger].tolist()}
    if now[both][larger].sum() < MOST * now[both].sum() or len(lines) < FEWEST_SITES:
        return None
    return float(np.median(ratios[larger])), int(both[larger][np.argmax(now[both][larger])])
