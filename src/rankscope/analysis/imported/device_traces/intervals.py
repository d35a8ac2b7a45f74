"""Sets of times as sorted, disjoint intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


class Intervals(NamedTuple):
    """Half-open, in order, none touching another: what `union` gives."""

    start: Times
    end: Times

    @property
    def total(self) -> int:
        """ns covered."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Times, end: Times) -> Intervals:
    """The times that any of the given intervals covers, in any order; those of no length cover nothing."""
    covers = end > start
    if not covers.all():
        start, end = start[covers], end[covers]
    if not len(start):
        return EMPTY
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return Intervals(start[first], reach[last])


def either(a: Intervals, b: Intervals) -> Intervals:
    """The times of one or the other."""
    if not len(a.start) or not len(b.start):
        return b if not len(a.start) else a
    return union(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def minus(a: Intervals, b: Intervals) -> Intervals:
    """The times of `a` that are not in `b`."""
    if not len(a.start) or not len(b.start):
        return a
    return both(a, complement(b, int(a.start[0]), int(a.end[-1])))


def both(a: Intervals, b: Intervals) -> Intervals:
    """The times of `a` that are in `b` as well."""
    if not len(a.start) or not len(b.start):
        return EMPTY
    # Every piece begins where one of them begins and the other one is under way.
    first = np.searchsorted(b.end, a.start, side="right")
    past = np.searchsorted(b.start, a.end, side="left")
    count = np.maximum(past - first, 0)
    at_a = np.repeat(np.arange(len(a.start)), count)
    at_b = np.arange(len(at_a)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Intervals(np.maximum(a.start[at_a], b.start[at_b]), np.minimum(a.end[at_a], b.end[at_b]))


def complement(a: Intervals, first: int, last: int) -> Intervals:
    """The times from `first` to `last` that are not in `a`."""
    inside = within(a, first, last)
    start = np.concatenate(([first], inside.end))
    end = np.concatenate((inside.start, [last]))
    some = end > start
    return Intervals(start[some], end[some])


def within(a: Intervals, first: int, last: int) -> Intervals:
    """The times of `a` from `first` to `last`."""
    lowest, highest = np.searchsorted(a.end, first, side="right"), np.searchsorted(a.start, last, side="left")
    return Intervals(np.maximum(a.start[lowest:highest], first), np.minimum(a.end[lowest:highest], last))


def covered(a: Intervals, start: Times, end: Times) -> Times:
    """How many ns of each of the given intervals, which may overlap, lie in `a`."""
    return until(a, end) - until(a, start)


def until(a: Intervals, at: Times) -> Times:
    """How many ns of the intervals lie before each moment."""
    if not len(a.start):
        return np.zeros(len(at), np.int64)
    before = np.concatenate(([0], np.cumsum(a.end - a.start)))
    count = np.searchsorted(a.start, at, side="right")
    return before[count] - np.where(count > 0, np.maximum(a.end[count - 1] - at, 0), 0)
