"""From events of an allocator to allocations: from when to when each lived, and how much was held at any time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.memory_snapshot import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    PENDING,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    MemorySnapshot,
)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """[allocation] each piece of memory that was held at some time of the history, or at its end."""

    start: Ints
    """Event by which it was taken; -1: before the history."""
    end: Ints
    """Event by which it was given back; the number of events: not in the history."""
    size: Ints
    """Bytes, as asked for."""
    address: Ints
    stack: Ints
    """-1: not recorded."""
    vanished: Flags
    """No event gave it back, and yet the state at the end does not hold it."""
    held: Ints
    """[event] bytes held by tensors after it."""
    reserved: Ints
    """[event] bytes got from the driver after it."""
    held_before: int
    """Bytes held before the first event."""

    @property
    def num_events(self) -> int:
        return len(self.held)

    @property
    def peak(self) -> int:
        """The event after which most was held; -1 where no event brought more than was held before."""
        if not len(self.held):
            return -1
        at = int(np.argmax(self.held))
        return at if self.held[at] > self.held_before else -1

    @property
    def peak_bytes(self) -> int:
        return int(self.held[self.peak]) if self.peak >= 0 else self.held_before

    def alive(self, event: int) -> Flags:
        """[allocation] whether it is held after this event."""
        found: Flags = (self.start <= event) & (self.end > event)
        return found


def lifetimes(snapshot: MemorySnapshot) -> Lifetimes:
    """The allocations of a snapshot: of its history, and of its state at the end."""
    n = len(snapshot.action)
    frees = [int(np.count_nonzero(snapshot.action == kind)) for kind in (FREE_REQUESTED, FREE_COMPLETED)]
    # Programs can leave kinds of events out (`skip_actions`).
    free = FREE_REQUESTED if frees[0] >= frees[1] else FREE_COMPLETED
    at = np.flatnonzero((snapshot.action == ALLOC) | (snapshot.action == free))
    order = at[np.argsort(snapshot.address[at], kind="stable")]
    address, takes = snapshot.address[order], snapshot.action[order] == ALLOC
    same = np.zeros(len(order), bool)
    same[:-1] = address[1:] == address[:-1]
    following = np.append(order[1:], n) if len(order) else order
    # An address that is taken again was given back in between, by an event that was not recorded.
    start, end = order[takes], np.where(same, following, n)[takes]
    # What is given back without having been taken was taken before; a second time is an event that was not recorded.
    gone = order[~takes & ~np.append(False, same[:-1])[: len(order)]]

    kept = snapshot.block_state != 0
    blocks = snapshot.block_address[kept]
    open_at = np.flatnonzero(end == n)
    in_state = np.isin(snapshot.address[start[open_at]], blocks)
    vanished = np.zeros(len(start), bool)
    if len(snapshot.block_address) or len(snapshot.segment_address):
        vanished[open_at[~in_state]] = True
    old = kept.copy()
    old[kept] = ~np.isin(blocks, snapshot.address[start[open_at]])
    old &= snapshot.block_state == ALLOCATED
    num_gone, num_old = len(gone), int(np.count_nonzero(old))

    starts = np.concatenate([np.full(num_gone + num_old, -1), start])
    ends = np.concatenate([gone, np.full(num_old, n), end])
    sizes = np.concatenate([snapshot.size[gone], snapshot.block_requested[old], snapshot.size[start]])
    seen = starts >= 0
    delta = np.bincount(starts[seen], sizes[seen], n + 1) - np.bincount(ends, sizes, n + 1)
    before = int(sizes[starts < 0].sum())
    stacks = np.concatenate([np.full(num_gone, -1), snapshot.block_stack[old], snapshot.stack[start]])
    return Lifetimes(
        start=starts,
        end=ends,
        size=sizes,
        address=np.concatenate([snapshot.address[gone], snapshot.block_address[old], snapshot.address[start]]),
        stack=stacks.astype(np.int64),
        vanished=np.concatenate([np.zeros(num_gone + num_old, bool), vanished]),
        held=before + np.cumsum(delta[:n].astype(np.int64)),
        reserved=_reserved(snapshot),
        held_before=before,
    )


def _reserved(snapshot: MemorySnapshot) -> Ints:
    sign = np.zeros(256, np.int64)
    sign[[SEGMENT_ALLOC, SEGMENT_MAP]] = 1
    sign[[SEGMENT_FREE, SEGMENT_UNMAP]] = -1
    changes = np.cumsum(sign[snapshot.action] * snapshot.size)
    if len(snapshot.segment_size) and len(changes):
        before = int(snapshot.segment_size.sum()) - int(changes[-1])
    else:
        before = -min(0, int(changes.min())) if len(changes) else 0
    return changes + max(0, before)


def pending_bytes(snapshot: MemorySnapshot) -> int:
    """Bytes given back that another stream still uses, at the end."""
    return int(snapshot.block_size[snapshot.block_state == PENDING].sum())
