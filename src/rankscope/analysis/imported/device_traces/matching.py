"""The same collective on several ranks, found though their windows differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.digest import TraceDigest

_AGREE: Final = 0.9
"""Of the calls that lie side by side, how many must be of one kind: below, the shift is a guess. Not all, as a tool
may lose an event."""
_NEAR: Final = 64
"""Calls around the shift that the clocks suggest."""
_SEARCHED: Final = 500
"""The same where no clock suggests one: traces of one capture begin within some steps of each other."""
_POINT_TO_POINT: Final = ("send", "recv", "sendrecv")


@dataclass(frozen=True, slots=True)
class Matched:
    """The calls of one process group that were seen on all of its ranks that have a trace.

    Columns are [rank, call]; rank by position in `members`.
    """

    group: str
    members: tuple[int, ...]
    """Positions in the digests."""
    operation: tuple[str, ...]
    """[call]"""
    size: NDArray[np.int64]
    """[call] bytes; -1: not recorded."""
    num_ranks: int
    """Of the group; -1: unknown."""
    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    compute_ns: NDArray[np.int64]
    idle_ns: NDArray[np.int64]
    kernels: NDArray[np.int64]

    @property
    def wait(self) -> NDArray[np.int64]:
        """[rank, call] ns: the shortest duration is the transfer, the rest is waiting for the last to come."""
        waited: NDArray[np.int64] = self.duration - self.duration.min(axis=0)
        return waited

    @property
    def end(self) -> NDArray[np.int64]:
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of one group on one rank."""

    position: int
    rows: NDArray[np.int64]
    operation: list[str]
    size: NDArray[np.int64]
    sequence: NDArray[np.int64]


def matched(digests: Sequence[TraceDigest]) -> list[Matched]:
    """Every group of which two or more ranks are at hand."""
    lines: dict[str, list[_Line]] = {}
    for position, digest in enumerate(digests):
        for group, rows in _groups(digest).items():
            lines.setdefault(group, []).append(_line(digest, position, rows))
    found = []
    for group, members in sorted(lines.items()):
        if len(members) > 1 and (one := _aligned(digests, group, members)) is not None:
            found.append(one)
    return found


def _groups(digest: TraceDigest) -> dict[str, NDArray[np.int64]]:
    """Rows by process group. A call that was launched before the window says nothing of its group: it is that of the
    others of its stream, if these are of one."""
    calls = digest.collectives
    names = [kind.group for kind in calls.kinds]
    pairwise = np.array([kind.operation in _POINT_TO_POINT for kind in calls.kinds], bool)
    group = np.array([names[kind] for kind in calls.kind.tolist()], object)
    for lane in np.unique(calls.lane).tolist():
        here = calls.lane == lane
        known = {name for name in group[here].tolist() if name}
        if len(known) == 1:
            group[here & (group == "")] = known.pop()
    usable = ~pairwise[calls.kind] if len(calls.kinds) else np.zeros(0, bool)
    return {name: np.flatnonzero((group == name) & usable) for name in dict.fromkeys(group[usable].tolist())}


def _line(digest: TraceDigest, position: int, rows: NDArray[np.int64]) -> _Line:
    calls = digest.collectives
    kinds = [calls.kinds[kind] for kind in calls.kind[rows].tolist()]
    size = np.array([kind.size for kind in kinds], np.int64)
    return _Line(position, rows, [kind.operation for kind in kinds], size, calls.sequence[rows])


def _aligned(digests: Sequence[TraceDigest], group: str, lines: list[_Line]) -> Matched | None:
    reference = max(lines, key=lambda line: len(line.rows))
    shifts: list[tuple[_Line, int]] = []
    for line in lines:
        shift = 0 if line is reference else _shift(digests, reference, line)
        if shift is not None:
            shifts.append((line, shift))
    first = max(shift for _, shift in shifts)
    last = min(shift + len(line.rows) for line, shift in shifts)
    if len(shifts) < 2 or last <= first:
        return None
    at = [line.rows[first - shift : last - shift] for line, shift in shifts]
    positions = [line.position for line, _ in shifts]

    def column(name: str, *, progress: bool = False) -> NDArray[np.int64]:
        sources = [digests[position].progress if progress else digests[position].collectives for position in positions]
        table: NDArray[np.int64] = np.stack(
            [getattr(source, name)[rows] for source, rows in zip(sources, at, strict=True)]
        )
        return table

    sizes = np.stack([line.size[first - shift : last - shift] for line, shift in shifts])
    operations = [line.operation[first - shift : last - shift] for line, shift in shifts]
    kinds = digests[reference.position].collectives.kinds
    return Matched(
        group=group,
        members=tuple(positions),
        operation=tuple(next((one for one in column if one), "") for column in zip(*operations, strict=True)),
        size=sizes.max(axis=0),
        num_ranks=max((kind.num_ranks for kind in kinds if kind.group == group), default=-1),
        start=column("start"),
        duration=column("duration"),
        compute_ns=column("compute_ns", progress=True),
        idle_ns=column("idle_ns", progress=True),
        kernels=column("kernels", progress=True),
    )


def _shift(digests: Sequence[TraceDigest], reference: _Line, line: _Line) -> int | None:
    """By how much the calls of a rank lie later in the reference's; None: cannot be told."""
    if (reference.sequence >= 0).all() and (line.sequence >= 0).all():
        return int(line.sequence[0] - reference.sequence[0])
    a, b = digests[reference.position], digests[line.position]
    end_a = (a.collectives.start + a.collectives.duration)[reference.rows]
    end_b = (b.collectives.start + b.collectives.duration)[line.rows]
    every = range(1 - len(line.rows), len(reference.rows))
    candidates: Sequence[int] = every
    if a.wall_clock and b.wall_clock:
        middle = len(end_b) // 2
        near = int(np.searchsorted(end_a, end_b[middle])) - middle
        candidates = [shift for shift in every if abs(shift - near) <= _NEAR]
    elif max(len(end_a), len(end_b)) > _SEARCHED:
        candidates = range(-_SEARCHED, _SEARCHED)
    codes = {name: number for number, name in enumerate(dict.fromkeys([*reference.operation, *line.operation]))}
    kind_a = np.array([codes[name] for name in reference.operation])
    kind_b = np.array([codes[name] for name in line.operation])
    best: tuple[float, float, int] | None = None
    for shift in candidates:
        lo, hi = max(0, shift), min(len(kind_a), shift + len(kind_b))
        if hi - lo < max(1, min(len(kind_a), len(kind_b)) // 2):
            continue
        here, there = slice(lo, hi), slice(lo - shift, hi - shift)
        size_a, size_b = reference.size[here], line.size[there]
        unlike = (size_a >= 0) & (size_b >= 0) & (size_a != size_b)
        agree = float(((kind_a[here] == kind_b[there]) & ~unlike).mean())
        if agree < _AGREE or (best is not None and agree < best[0] - 1e-9):
            continue
        # All ranks are done with a call at about one moment, so the right shift leaves the ends one constant apart.
        apart = end_a[here] - end_b[there]
        spread = float(np.median(np.abs(apart - np.median(apart)))) if hi - lo > 1 else float(abs(apart[0]))
        if best is None or (-agree, spread) < (-best[0], best[1]):
            best = (agree, spread, shift)
    return best[2] if best is not None else None
