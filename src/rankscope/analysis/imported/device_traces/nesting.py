"""What ran within what on the threads of the host."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.device_trace import ANNOTATION, OPERATOR, PYTHON, RUNTIME, DeviceTrace


@dataclass(frozen=True, slots=True)
class Nesting:
    """Of all spans of a trace; only those of host threads have a parent and children."""

    parent: NDArray[np.int32]
    """[span] -1: none."""
    depth: NDArray[np.int32]
    """[span] 0: nothing around it; -1: not of the host."""

    def nearest(self, trace: DeviceTrace, spans: NDArray[np.integer], category: int) -> NDArray[np.int64]:
        """For each of `spans` the innermost one around it that has the category; -1: none, and for -1."""
        found = np.full(len(spans), -1, np.int64)
        at = np.where(spans >= 0, self.parent[spans], -1).astype(np.int64)
        while True:
            hit = (at >= 0) & (found < 0)
            hit[hit] = trace.category[at[hit]] == category
            found[hit] = at[hit]
            on = (at >= 0) & (found < 0)
            if not on.any():
                return found
            at = np.where(on, self.parent[at], -1)

    def around(self, span: int) -> list[int]:
        """The spans around one, innermost first."""
        found = []
        at = int(self.parent[span])
        while at >= 0:
            found.append(at)
            at = int(self.parent[at])
        return found

    def summed_up(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """[span] its own value and those of all within it."""
        total = values.copy()
        order = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[order], np.arange(1, int(self.depth.max(initial=0)) + 2))
        for level in range(len(bounds) - 2, -1, -1):
            inner = order[bounds[level] : bounds[level + 1]]
            inner = inner[self.parent[inner] >= 0]
            np.add.at(total, self.parent[inner], total[inner])
        return total


def nesting_of(trace: DeviceTrace) -> Nesting:
    """Found thread by thread from times alone: a span's parent is the shortest one around it."""
    parent = np.full(len(trace.start_ns), -1, np.int32)
    depth = np.full(len(trace.start_ns), -1, np.int32)
    host = np.flatnonzero(np.isin(trace.category, (OPERATOR, ANNOTATION, PYTHON, RUNTIME)))
    lanes = trace.lane[host]
    order = np.argsort(lanes, kind="stable")
    bounds: list[int] = [*np.flatnonzero(np.diff(lanes[order], prepend=-1)).tolist(), len(host)] if len(host) else []
    for first, last in pairwise(bounds):
        _nest(trace, host[order[first:last]], parent, depth)
    return Nesting(parent, depth)


def _nest(trace: DeviceTrace, spans: NDArray[np.int64], parent: NDArray[np.int32], depth: NDArray[np.int32]) -> None:
    start = trace.start_ns[spans]
    length = np.maximum(trace.duration_ns[spans], 1)  # one of no length would be over before it begins
    order = np.lexsort((-length, start))
    spans, start, length = spans[order], start[order], length[order]
    end = start + length
    # As many are open around it as have begun and not ended.
    level = np.arange(len(spans)) - np.searchsorted(np.sort(end), start, side="right")
    depth[spans] = level
    by_level = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[by_level], np.arange(int(level.max(initial=0)) + 2))
    for depth_of in range(1, len(bounds) - 1):
        outer = by_level[bounds[depth_of - 1] : bounds[depth_of]]
        inner = by_level[bounds[depth_of] : bounds[depth_of + 1]]
        at = np.searchsorted(outer, inner) - 1
        known = at >= 0
        around, inner = outer[at[known]], inner[known]
        # Where spans overlap without nesting the last one of that level may be over.
        nested = end[around] > start[inner]
        parent[spans[inner[nested]]] = spans[around[nested]]
