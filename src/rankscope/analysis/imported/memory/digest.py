"""What is kept of one memory snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.examiner import Digest
from rankscope.analysis.imported.memory.bursts import Burst, burst
from rankscope.analysis.imported.memory.categories import STATE, by_category, categories
from rankscope.analysis.imported.memory.failure import Failure, failure, retries
from rankscope.analysis.imported.memory.leaks import Leak, leak
from rankscope.analysis.imported.memory.lifetimes import Lifetimes, lifetimes
from rankscope.analysis.imported.memory.pieces import Pieces, pieces
from rankscope.analysis.imported.memory.sites import BACKWARD, FORWARD, Sites
from rankscope.analysis.imported.memory.steps import step_ends
from rankscope.records.imported.memory_snapshot import ALLOC, ALLOCATED, OTHER, Frame, MemorySnapshot

MOST_SITES: Final = 200
"""Lines of a snapshot that are compared with those of other snapshots; the rest holds next to nothing."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one line holds."""

    place: str
    count: int
    bytes: int
    location: Frame | None
    """The user's own line, where there is one."""


@dataclass(frozen=True, slots=True)
class SnapshotDigest(Digest):
    device: int
    num_events: int
    num_blocks: int
    num_segments: int
    num_frames: int
    first_ns: int | None
    last_ns: int | None
    held: int
    """Bytes held by tensors at the end."""
    reserved: int
    """Bytes got from the driver at the end."""
    peak: int
    """The most bytes held at once."""
    peak_reserved: int
    at_peak: tuple[Held, ...]
    """The lines that hold most at the peak."""
    categories: tuple[tuple[str, int], ...]
    """(category, bytes) at the peak, or at the failure, the largest first."""
    at_end: tuple[Held, ...]
    num_steps: int
    steps_by: str
    failure: Failure | None
    leak: Leak | None
    burst: Burst | None
    layout: Pieces | None
    """At the peak."""
    retries: int
    retry_layout: Pieces | None
    state_bytes: int
    """Optimizer state that appeared in the history and is held at the failure, or else at the end."""
    steps_before_failure: int
    unknown_events: int
    vanished: int
    """Allocations that no event gave back and that are yet not held at the end."""
    expandable: bool

    @property
    def is_empty(self) -> bool:
        return not (self.num_events or self.num_blocks)


def digest(snapshot: MemorySnapshot) -> SnapshotDigest:
    """Everything that is said of a snapshot later."""
    lives = lifetimes(snapshot)
    sites = Sites(snapshot)
    kinds = categories(lives, sites)
    failed = failure(snapshot, lives, sites)
    ends, by = step_ends(snapshot, lives, sites)
    if failed is not None:
        ends = ends[ends < failed.event]
        if failed.in_optimizer and len(ends) and not _works(snapshot, sites, int(ends[-1]), failed.event):
            ends = ends[:-1]  # it failed in this very step of the optimizer
    moment = failed.event if failed is not None else lives.peak
    alive = lives.alive(moment)
    last = lives.alive(lives.num_events - 1) & ~lives.vanished
    in_state = (kinds == STATE) & (lives.start >= 0) & (lives.alive(failed.event) if failed is not None else last)
    times = snapshot.time_ns[snapshot.time_ns >= 0]
    again, again_layout = retries(snapshot, lives, sites)
    return SnapshotDigest(
        file=snapshot.file,
        rank=snapshot.rank,
        device=snapshot.device,
        num_events=len(snapshot.action),
        num_blocks=len(snapshot.block_size),
        num_segments=len(snapshot.segment_size),
        num_frames=len(snapshot.frames),
        first_ns=int(times[0]) if len(times) else None,
        last_ns=int(times[-1]) if len(times) else None,
        held=int(snapshot.block_requested[snapshot.block_state == ALLOCATED].sum()),
        reserved=int(snapshot.segment_size.sum()),
        peak=lives.peak_bytes,
        peak_reserved=int(max(lives.reserved.max(initial=0), snapshot.segment_size.sum())),
        at_peak=_held(lives, sites, alive),
        categories=tuple(by_category(lives, kinds, alive).items()),
        at_end=_held(lives, sites, last),
        num_steps=len(ends),
        steps_by=by,
        failure=failed,
        leak=leak(lives, sites, ends),
        burst=burst(lives, sites, ends, failed.event if failed is not None else None),
        layout=pieces(snapshot, lives, sites, moment),
        retries=again,
        retry_layout=again_layout,
        state_bytes=int(lives.size[in_state].sum()),
        steps_before_failure=len(ends),
        unknown_events=int(np.count_nonzero(snapshot.action == OTHER)),
        vanished=int(np.count_nonzero(lives.vanished)),
        expandable=bool(snapshot.segment_expandable.any()) or snapshot.settings.get("expandable_segments") == "True",
    )


def _works(snapshot: MemorySnapshot, sites: Sites, first: int, last: int) -> bool:
    """Whether a forward or backward allocates between these events."""
    takes = snapshot.action[first:last] == ALLOC
    parts = sites.parts[snapshot.stack[first:last][takes]]
    return bool(((parts & (FORWARD | BACKWARD)) > 0).any())


def _held(lives: Lifetimes, sites: Sites, alive: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> tuple[Held, ...]:
    stacks, index, counts = np.unique(lives.stack[alive], return_inverse=True, return_counts=True)
    sums = np.bincount(index, lives.size[alive], len(stacks))
    found: dict[str, Held] = {}
    for stack, count, size in zip(stacks.tolist(), counts.tolist(), sums.tolist(), strict=True):
        site = sites[stack]
        text = site.text
        before = found.get(text)
        n, b = (before.count, before.bytes) if before is not None else (0, 0)
        found[text] = Held(text, n + count, b + int(size), site.user or site.place)
    return tuple(sorted(found.values(), key=lambda one: -one.bytes)[:MOST_SITES])
