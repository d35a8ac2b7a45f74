"""Puts slices that overlap without nesting onto lanes of their own, so that each lane nests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rankscope.report.timeline.parts import Column, Flow, Ints, Part, Slices, Track

MOST_LANES = 64
"""Of one track. What needs more is no work of one thread or stream; it is cut to where it fits."""


def drawn(track: Track, slices: Slices, ids: Iterator[int]) -> Iterator[Part]:
    """A track with slices in any order, and as many tracks of the same name beside it as their overlaps need; nothing
    where there are no slices. Rows that end before they start end where they start."""
    start, end = slices.start_ns, np.maximum(slices.start_ns, slices.end_ns)
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    lane, end = _lanes(start, end)
    for number in range(int(lane.max()) + 1 if len(lane) else 0):
        here = replace(track, id=next(ids)) if number else track
        rows = np.flatnonzero(lane == number)
        yield here
        yield _taken(slices, here.id, order[rows], start[rows], end[rows])


def _lanes(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(the lane of each of the sorted slices, their ends, cut where there are too many lanes)."""
    lane = np.zeros(len(start), np.int64)
    if (start[1:] >= end[:-1]).all():
        return lane, end
    stacks: list[list[int]] = [[]]
    numbers, cut = lane.tolist(), end.tolist()
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        number = _fitting(stacks, begin, until)
        if number < len(stacks):
            stacks[number].append(until)
        elif number < MOST_LANES:
            stacks.append([until])
        else:
            number, cut[row] = 0, stacks[0][-1]
            stacks[0].append(cut[row])
        numbers[row] = number
    return np.array(numbers, np.int64), np.array(cut, np.int64)


def _fitting(stacks: list[list[int]], begin: int, until: int) -> int:
    """The first lane on which a slice nests; a new one where there is none. What has ended by then is closed."""
    for number, stack in enumerate(stacks):
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or until <= stack[-1]:
            return number
    return len(stacks)


def _taken(slices: Slices, track: int, rows: Ints, start: Ints, end: Ints) -> Slices:
    columns = tuple(
        Column(c.name, c.values[rows], c.texts, None if c.there is None else c.there[rows]) for c in slices.columns
    )
    flows = tuple(Flow(flow.id[rows], flow.role[rows]) for flow in slices.flows)
    return Slices(track, start, end, slices.name[rows], slices.category[rows], slices.names, columns, flows)
