"""What grows from one snapshot of a rank to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rankscope.analysis.imported.memory.digest import SnapshotDigest
from rankscope.records.imported.memory_snapshot import Frame

WORTH: Final = 0.05
"""Of what the last snapshot holds, what must have been added: snapshots are not taken at one and the same point."""
FEWEST: Final = 3
"""Snapshots: between two of them a training may have begun, or a first step made its states."""
UNEVEN: Final = 3.0
"""Largest over smallest of the additions: what is made once adds much and then nothing."""


@dataclass(frozen=True, slots=True)
class Growth:
    place: str
    location: Frame | None
    counts: tuple[int, ...]
    bytes: tuple[int, ...]
    """Held by the line in each snapshot, in order of time."""
    lines: int
    """That grow in the same way."""

    @property
    def added(self) -> int:
        return self.bytes[-1] - self.bytes[0]


def in_order(snapshots: Sequence[SnapshotDigest]) -> list[SnapshotDigest]:
    """By the time of their last event; by name where the files do not say it."""
    return sorted(snapshots, key=lambda d: (d.last_ns if d.last_ns is not None else -1, d.file))


def growth(snapshots: Sequence[SnapshotDigest]) -> Growth | None:
    """The line that holds more in each snapshot of one rank and device than in the one before, by similar amounts."""
    known = [d for d in in_order(snapshots) if d.held > 0]
    if len(known) < FEWEST:
        return None
    held = [{h.place: h for h in d.at_end} for d in known]
    found = []
    for place, last in held[-1].items():
        rows = [h.get(place) for h in held]
        counts = tuple(row.count if row is not None else 0 for row in rows)
        sizes = tuple(row.bytes if row is not None else 0 for row in rows)
        added = [b - a for a, b in pairwise(sizes)]
        more = all(b > a for a, b in pairwise(counts))
        if more and min(added) > 0 and max(added) <= UNEVEN * min(added):
            found.append((sizes[-1] - sizes[0], place, last.location, counts, sizes))
    if not found or sum(one[0] for one in found) < WORTH * known[-1].held:
        return None
    _, place, location, counts, sizes = max(found, key=lambda one: one[0])
    return Growth(place, location, counts, sizes, len(found))
