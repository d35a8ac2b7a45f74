"""Call-sites whose allocations become more with every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.sites import FORWARD, Sites
from rankscope.records.imported.memory_snapshot import Frame

Ints = NDArray[np.int64]

FEWEST_STEPS: Final = 5
"""Ends of steps, after the first one: caches, states and workspaces are made in the first step and stay."""
STEADY: Final = 0.8
"""Of the steps, the share in which the count rises: what is kept until it is printed or saved rises in few of them."""
WORTH: Final = 0.02
"""Of the peak, what has to be kept at the end: values kept for a log are less."""
GRAPH_SITES: Final = 3
"""Different lines of forward calls that grow by the same number: that is a graph, not a container."""


@dataclass(frozen=True, slots=True)
class Leak:
    """What is kept from step to step."""

    bytes: int
    """Kept at the end of the last step, more than at the end of the first."""
    bytes_per_step: float
    count: int
    steps: int
    place: str
    """The line that allocates most of it."""
    location: Frame | None
    graph: bool
    """It is the saved tensors of forward calls, of many lines at once."""
    sites: tuple[tuple[str, int, int], ...]
    """(line, allocations, bytes) kept, the largest first."""


def leak(lives: Lifetimes, sites: Sites, ends: Ints) -> Leak | None:
    """The allocations that pile up, if any do. `ends`: events at which steps end."""
    bounds = ends[1:]
    if len(bounds) < FEWEST_STEPS:
        return None
    first = np.searchsorted(bounds, lives.start)  # the first end at or after which it is held
    last = np.searchsorted(bounds, lives.end)  # the end before which it is gone
    # Only what is made after the first of these ends and outlives one of them.
    carried = (lives.start >= ends[0]) & (last > first) & ~lives.vanished
    if not carried.any():
        return None
    # Without a stack, one size is one line.
    keys = np.where(lives.stack >= 0, lives.stack, -1 - lives.size)[carried]
    groups, index = np.unique(keys, return_inverse=True)
    sizes, steps = lives.size[carried], len(bounds)
    counts = _levels(index, first[carried], last[carried], np.ones(len(sizes)), len(groups), steps)
    held = _levels(index, first[carried], last[carried], sizes, len(groups), steps)
    rises = np.diff(counts, axis=1)
    third = max(1, steps // 3)
    grows = ((rises > 0).mean(axis=1) >= STEADY) & (rises >= 0).all(axis=1) & (rises[:, -third:] > 0).any(axis=1)
    kept = held[:, -1] - held[:, 0]
    grows &= kept > 0
    if kept[grows].sum() < WORTH * lives.peak_bytes:
        return None
    order = np.flatnonzero(grows)[np.argsort(-kept[grows])]
    rows = [(int(groups[i]), int(counts[i, -1] - counts[i, 0]), int(kept[i])) for i in order]
    top = sites[rows[0][0]] if rows[0][0] >= 0 else sites[-1]
    forward = [(sites[key], count) for key, count, _ in rows if key >= 0 and sites[key].parts & FORWARD]
    alike = {site.place for site, count in forward if count == rows[0][1]}
    total = int(kept[grows].sum())
    return Leak(
        bytes=total,
        bytes_per_step=total / (steps - 1),
        count=sum(count for _, count, _ in rows),
        steps=steps,
        place=_text(sites, rows[0][0]),
        location=top.user or top.place,
        graph=len(alike) >= GRAPH_SITES,
        sites=tuple((_text(sites, key), count, size) for key, count, size in rows[:8]),
    )


def _text(sites: Sites, key: int) -> str:
    return sites[key].text if key >= 0 else f"allocations of {-1 - key:,} bytes, of which no stack was recorded"


def _levels(  # noqa: PLR0917  three columns and the two sizes of the result
    index: Ints, first: Ints, last: Ints, weights: NDArray[np.generic], groups: int, steps: int
) -> NDArray[np.float64]:
    """[group, step] what is held at the end of each step."""
    width = steps + 1
    change = np.bincount(index * width + first, weights, groups * width).astype(np.float64)
    change -= np.bincount(index * width + last, weights, groups * width)
    found: NDArray[np.float64] = np.cumsum(change.reshape(groups, width), axis=1)[:, :steps]
    return found
