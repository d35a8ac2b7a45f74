"""What the run would gain: its own dependency graph, replayed with some durations replaced.

Each rank does its segments in program order; a segment that waits ends when the last rank has entered the collective
and the transfer is done. Replaying the measured durations gives the measured run back; replaying changed ones gives
the run without the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching import Matches
from rankscope.analysis.timeline import Timeline

Durations = tuple[NDArray[np.int64], ...]
"""For each rank the duration of each of its segments: work, or for a wait the transfer alone."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The dependency graph of the analysed window. Lists: single numbers are read from them again and again."""

    durations: Durations
    """As measured; waits hold their transfer."""
    begin: tuple[int, ...]
    """For each rank when its first segment begins, from the start of the window."""
    enters: tuple[list[tuple[int, ...]], ...]
    """For each rank and segment the ids of the collectives that are entered at its start."""
    waits: tuple[list[int], ...]
    """For each segment the id of the collective it waits for, -1: none."""
    members: list[int]

    def total(self, durations: Durations | None = None) -> float:
        """The time in ns until the last rank is done."""
        return float(max(self.finish(durations), default=0))

    def finish(self, durations: Durations | None = None) -> list[int]:
        """When each rank is done with its last segment."""
        lists = [d.tolist() for d in (durations or self.durations)]
        entered = [0] * len(self.members)
        missing = list(self.members)
        clock = list(self.begin)
        position = [0] * len(lists)
        announced = [-1] * len(lists)
        while any(position[rank] < len(own) for rank, own in enumerate(lists)):
            progress = False
            for rank, own in enumerate(lists):
                at, now = position[rank], clock[rank]
                begin, wait, enter = at, self.waits[rank], self.enters[rank]
                while at < len(own):
                    if enter[at] and at > announced[rank]:
                        announced[rank] = at
                        for id in enter[at]:
                            missing[id] -= 1
                            entered[id] = max(entered[id], now)
                    id = wait[at]
                    if id >= 0:
                        if missing[id] > 0:
                            break  # somebody has not come yet
                        now = max(now, entered[id])
                    now += own[at]
                    at += 1
                progress = progress or at > begin
                position[rank], clock[rank] = at, now
            if not progress:
                # Somebody's entry was never seen (a lost record, the edge of the window): nobody can wait for it.
                for rank, own in enumerate(lists):
                    if position[rank] < len(own):
                        missing[self.waits[rank][position[rank]]] = 0
        return clock


def build(timelines: Sequence[Timeline], matches: Matches, begin: int, end: int) -> tuple[Graph, list[slice]]:
    """The graph of all segments that start in [begin, end), and for each rank the slice of its segments in it."""
    durations, enters, waits, slices, begins = [], [], [], [], []
    needed = np.zeros(len(matches.members), np.int64)
    for position, timeline in enumerate(timelines):
        starts = timeline.segments["start"].astype(np.int64)
        low, high = (int(x) for x in np.searchsorted(starts, (begin, end)))
        part = timeline.segments[low:high]
        slices.append(slice(low, high))
        ids = matches.ids[position]
        # Every call of a collective begins a segment of its own.
        calls = timeline.collectives["time_ns"].astype(np.int64)
        first, last = (int(x) for x in np.searchsorted(calls, (begin, end)))
        where = np.searchsorted(starts[low:high], calls[first:last], side="right") - 1
        begins.append(int(starts[low]) - begin if high > low else 0)
        mine: dict[int, list[int]] = {}
        for at, id in zip(where.tolist(), ids[first:last].tolist(), strict=True):
            if at >= 0:
                mine.setdefault(at, []).append(id)
                needed[id] += 1
        enters.append([tuple(mine.get(at, ())) for at in range(high - low)])
        own = (part["end"] - part["start"]).astype(np.int64)
        wait = np.full(len(part), -1, np.int64)
        if len(ids):
            collective = part["collective"].astype(np.int64)
            at = np.maximum(collective, 0)
            shared = (collective >= 0) & (matches.members[ids[at]] > 1)
            wait = np.where(shared, ids[at], -1)
            # Of a wait, only what lies behind the last arrival is work of the network: the transfer.
            arrival = np.maximum(part["start"].astype(np.int64), matches.last_enter[position][at])
            own = np.where(shared, np.clip(part["end"] - arrival, 0, own), own)
        durations.append(own)
        waits.append(wait.tolist())
    return Graph(tuple(durations), tuple(begins), tuple(enters), tuple(waits), needed.tolist()), slices
