"""How the memory that was got from the driver is cut up: free pieces, and what keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.sites import Sites
from rankscope.records.imported.memory_snapshot import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, MemorySnapshot

Ints = NDArray[np.int64]

ROUNDED: Final = 512
"""Bytes to which PyTorch rounds sizes up."""
SMALL_SEGMENT: Final = 2 << 20
"""Bytes of the segments that serve requests of up to 1 MiB, and nothing else."""
LITTLE_USED: Final = 0.5
"""Of a segment, what is used at most where its blocks are said to pin it."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The layout at one moment, without private pools and segments of small requests."""

    reserved: int
    used: int
    largest_free: int
    num_free: int
    pinned_segments: int
    """Segments of which at most half is used, but not nothing."""
    pinned_bytes: int
    """Free bytes in them."""
    pinning_blocks: int
    pinning_bytes: int
    """Of the blocks that keep them."""
    pinning_sites: tuple[tuple[str, int, int], ...]
    """(line, blocks, bytes), the most blocks first."""

    @property
    def free(self) -> int:
        return self.reserved - self.used


def pieces(snapshot: MemorySnapshot, lives: Lifetimes, sites: Sites, event: int) -> Pieces | None:
    """The layout after an event; None where it cannot be told: no segments are known, or they can grow and shrink."""
    if snapshot.segment_expandable.any() or (snapshot.action == SEGMENT_MAP).any():
        return None
    segments = _segments(snapshot, event)
    if not segments:
        return None
    starts = np.array(sorted(segments), np.int64)
    sizes = np.array([segments[start] for start in starts.tolist()], np.int64)
    alive = np.flatnonzero(lives.alive(event) & ~lives.vanished)
    alive = alive[np.argsort(lives.address[alive], kind="stable")]
    address, used = lives.address[alive], -(-lives.size[alive] // ROUNDED) * ROUNDED
    owner = np.searchsorted(starts, address, side="right") - 1
    inside = (owner >= 0) & (address < starts[owner] + sizes[owner])
    alive, address, used, owner = alive[inside], address[inside], used[inside], owner[inside]
    # Gaps before each block and behind the last one of each segment.
    new = np.ones(len(owner), bool)
    new[1:] = owner[1:] != owner[:-1]
    ends = address + used
    before = np.where(new, starts[owner], np.append(0, ends[:-1])[: len(ends)])
    last = np.append(new[1:], True)[: len(owner)]
    empty = np.setdiff1d(np.arange(len(starts)), owner)
    tails = starts[owner[last]] + sizes[owner[last]] - ends[last]
    gaps = np.concatenate([address - before, tails, sizes[empty]])
    gaps = gaps[gaps > 0]
    in_use = np.bincount(owner, used, len(starts))
    pinned = (in_use > 0) & (in_use <= LITTLE_USED * sizes)
    mine = pinned[owner]
    return Pieces(
        reserved=int(sizes.sum()),
        used=int(in_use.sum()),
        largest_free=int(gaps.max()) if len(gaps) else 0,
        num_free=len(gaps),
        pinned_segments=int(np.count_nonzero(pinned)),
        pinned_bytes=int((sizes - in_use)[pinned].sum()),
        pinning_blocks=int(np.count_nonzero(mine)),
        pinning_bytes=int(used[mine].sum()),
        pinning_sites=_sites(lives.stack[alive[mine]], used[mine], sites),
    )


def _segments(snapshot: MemorySnapshot, event: int) -> dict[int, int]:
    """Address -> bytes of what was held from the driver after an event: from the state at the end, backwards."""
    shared = (snapshot.segment_pool == 0) & (snapshot.segment_size > SMALL_SEGMENT)
    found = dict(zip(snapshot.segment_address[shared].tolist(), snapshot.segment_size[shared].tolist(), strict=True))
    changes = np.flatnonzero((snapshot.action == SEGMENT_ALLOC) | (snapshot.action == SEGMENT_FREE))
    for at in changes[changes > event][::-1].tolist():
        address, size = int(snapshot.address[at]), int(snapshot.size[at])
        if snapshot.action[at] == SEGMENT_ALLOC:
            found.pop(address, None)
        elif size > SMALL_SEGMENT:
            found[address] = size
    return found


def _sites(stacks: Ints, sizes: Ints, sites: Sites) -> tuple[tuple[str, int, int], ...]:
    groups, index, counts = np.unique(stacks, return_inverse=True, return_counts=True)
    sums = np.bincount(index, sizes, len(groups))
    by_line: dict[str, tuple[int, int]] = {}
    for stack, count, size in zip(groups.tolist(), counts.tolist(), sums.tolist(), strict=True):
        text = sites[stack].text
        n, b = by_line.get(text, (0, 0))
        by_line[text] = n + count, b + int(size)
    return tuple(sorted(((t, n, b) for t, (n, b) in by_line.items()), key=lambda one: (-one[1], -one[2]))[:5])
