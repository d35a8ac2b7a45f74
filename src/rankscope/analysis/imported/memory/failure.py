"""The allocation that failed: what was asked for, what there was, and what of it would have been enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.pieces import Pieces, pieces
from rankscope.analysis.imported.memory.sites import OPTIMIZER, Sites
from rankscope.records.imported.memory_snapshot import ALLOC, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Frame, MemorySnapshot

RECOVERED: Final = 100
"""Allocations after the failure, more than which a program makes only if it goes on: handling the error takes a few."""


@dataclass(frozen=True, slots=True)
class Failure:
    event: int
    requested: int
    device_free: int
    held: int
    reserved: int
    count: int
    """Of failed allocations in the history; this is the last one."""
    went_on: bool
    place: str
    location: Frame | None
    in_optimizer: bool
    layout: Pieces | None

    @property
    def short(self) -> int:
        """Bytes that were missing on the device; 0 where it had enough, so that something else set the limit."""
        return max(0, self.requested - self.device_free)

    @property
    def free_in_pieces(self) -> bool:
        """Whether the free memory was enough in total, but no piece of it."""
        return self.layout is not None and self.layout.largest_free < self.requested <= self.layout.free


def failure(snapshot: MemorySnapshot, lives: Lifetimes, sites: Sites) -> Failure | None:
    """The last allocation that failed; None where none did, or none is in the history."""
    failed = np.flatnonzero(snapshot.action == OOM)
    if not len(failed):
        return None
    at = int(failed[-1])
    stack = int(snapshot.stack[at])
    site = sites[stack]
    return Failure(
        event=at,
        requested=int(snapshot.size[at]),
        device_free=max(0, int(snapshot.address[at])),
        held=int(lives.held[at]),
        reserved=int(lives.reserved[at]),
        count=len(failed),
        went_on=int(np.count_nonzero(snapshot.action[at:] == ALLOC)) > RECOVERED,
        place=site.text,
        location=site.user or site.place,
        in_optimizer=bool(site.parts & OPTIMIZER),
        layout=pieces(snapshot, lives, sites, at),
    )


def retries(snapshot: MemorySnapshot, lives: Lifetimes, sites: Sites) -> tuple[int, Pieces | None]:
    """How often the allocator gave segments back to the driver in order to get another one, and the layout before the
    last time if its free pieces would have been enough together.

    Each such time the device was full, and everything that ran on it was waited for.
    """
    at = np.flatnonzero((snapshot.action == SEGMENT_ALLOC) | (snapshot.action == SEGMENT_FREE))
    before, after = at[:-1], at[1:]
    # `empty_cache` gives back as well: its stack is another one than that of the line which needs memory.
    same = (snapshot.action[before] == SEGMENT_FREE) & (snapshot.action[after] == SEGMENT_ALLOC) & (after - before == 1)
    same &= (snapshot.stack[before] == snapshot.stack[after]) & (snapshot.stack[before] >= 0)
    found = after[same]
    if not len(found):
        return 0, None
    last = int(found[-1])
    layout = pieces(snapshot, lives, sites, last - 1)
    size = int(snapshot.size[last])
    fits = layout is not None and layout.largest_free < size <= layout.free
    return len(found), layout if fits else None
