"""Who waits for whom, from the unfinished operations in the dumps of all ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rankscope.records.imported.flight_dump import FlightDump, FlightEntry, FlightGroup

_DIRECTION = re.compile(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})")


@dataclass(frozen=True, slots=True)
class Standing:
    """The first operation that a rank has not finished."""

    rank: int
    entry: FlightEntry
    members: tuple[int, ...]
    """Ranks that take part in it."""


class Waiting:
    """The state of all ranks of which there is a dump."""

    def __init__(self, dumps: Mapping[int, FlightDump]) -> None:
        self.dumps = dumps
        self._members: dict[str, tuple[int, ...]] = {}
        for dump in dumps.values():
            for group in dump.groups:
                if len(group.ranks) > len(self._members.get(group.name, ())):
                    self._members[group.name] = group.ranks
        self._paired = {e.group for dump in dumps.values() for e in dump.entries if e.point_to_point}
        # By rank, so that a thousand ranks that wait for one another are not a million searches of a dump.
        self._newest = {rank: _newest(dump) for rank, dump in dumps.items()}
        self._unfinished = {
            rank: frozenset(_identity(e) for e in dump.entries if not e.finished) for rank, dump in dumps.items()
        }
        self._awaited: dict[int, tuple[int, ...]] = {}
        self._waiters: dict[int, list[int]] = defaultdict(list)
        self.standing = {rank: one for rank in dumps if (one := self._first_unfinished(rank)) is not None}

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that any dump speaks of."""
        return tuple(sorted({*self.dumps, *(r for ranks in self._members.values() for r in ranks)}))

    def members(self, group: str) -> tuple[int, ...]:
        """Global ranks of a group; of one that no dump describes, the ranks that have used it."""
        known = self._members.get(group)
        if not known:
            known = tuple(sorted(r for r, dump in self.dumps.items() if any(e.group == group for e in dump.entries)))
            self._members[group] = known
        return known

    def description(self, group: str) -> str:
        """`EXPERT_MODEL_PARALLEL_GROUP (group 72)`."""
        found = next((g.description for d in self.dumps.values() for g in d.groups if g.name == group), "")
        return f"{found} (group {group})" if found and found != group else f"group {group}"

    def enqueued(self, rank: int, entry: FlightEntry) -> bool:
        """Whether a rank has entered what another one waits in."""
        if rank not in self.dumps:
            return False
        if entry.point_to_point and _ends(entry) is not None:
            return self._has(rank, entry)
        newest = self._newest[rank].get((entry.group, entry.point_to_point), -1)
        if newest < entry.sequence and not entry.point_to_point and entry.group not in self._paired:
            group = self._group(rank, entry.group)
            newest = max(newest, group.last_enqueued, group.last_completed) if group is not None else newest
        return newest >= entry.sequence

    def waits_for(self, rank: int) -> tuple[int, ...]:
        """The ranks that keep this one: they have not entered its operation, or stand in an earlier one of theirs."""
        if rank not in self._awaited:
            self._awaited[rank] = self._waits_for(rank)
        return self._awaited[rank]

    def _waits_for(self, rank: int) -> tuple[int, ...]:
        mine = self.standing.get(rank)
        if mine is None:
            return ()
        found = []
        for other in mine.members:
            if other == rank:
                continue
            theirs = self.standing.get(other)
            elsewhere = theirs is not None and not _matches(theirs.entry, mine.entry) and self._has(other, mine.entry)
            if elsewhere or not self.enqueued(other, mine.entry):
                found.append(other)
        return tuple(found)

    def culprits(self) -> tuple[int, ...]:
        """Ranks that others wait for, and that wait for nobody themselves."""
        edges = {rank: self.waits_for(rank) for rank in self.standing}
        waited_for = {other for others in edges.values() for other in others}
        return tuple(sorted(rank for rank in waited_for if not edges.get(rank) and not self.all_here(rank)))

    def all_here(self, rank: int) -> bool:
        """Whether a rank stands in an operation in which all others stand too: nobody is missing."""
        mine = self.standing.get(rank)
        if mine is None:
            return False
        others = [self.standing.get(other) for other in mine.members if other != rank]
        return bool(others) and all(one is not None and _matches(one.entry, mine.entry) for one in others)

    def waiters(self, rank: int) -> tuple[int, ...]:
        if not self._waiters:
            for one in sorted(self.standing):
                for other in self.waits_for(one):
                    self._waiters[other].append(one)
        return tuple(self._waiters.get(rank, ()))

    def _group(self, rank: int, name: str) -> FlightGroup | None:
        return next((group for group in self.dumps[rank].groups if group.name == name), None)

    def _has(self, rank: int, entry: FlightEntry) -> bool:
        """Whether the rank's own dump still holds the operation, unfinished."""
        return _counterpart(entry) in self._unfinished[rank]

    def _first_unfinished(self, rank: int) -> Standing | None:
        unfinished = [e for e in self.dumps[rank].entries if not e.finished]
        # One that only ends a batch of sends and receives does not say between whom.
        told = (e for e in unfinished if not e.point_to_point or _ends(e) is not None)
        first = next(told, unfinished[0] if unfinished else None)
        if first is None:
            return None
        return Standing(rank, first, self._partners(first))

    def _partners(self, entry: FlightEntry) -> tuple[int, ...]:
        members = self.members(entry.group)
        ends = _ends(entry) if entry.point_to_point else None
        if ends is None:
            return members
        # Numbers are those in the group, of the default group the global ones.
        return tuple(members[place] for place in sorted(set(ends)) if place < len(members))


def _newest(dump: FlightDump) -> dict[tuple[str, bool], int]:
    """Highest number of each group, of collectives and of sends and receives."""
    found: dict[tuple[str, bool], int] = {}
    for entry in dump.entries:
        key = entry.group, entry.point_to_point
        found[key] = max(found.get(key, -1), entry.sequence)
    return found


def _matches(one: FlightEntry, other: FlightEntry) -> bool:
    """Whether two ranks stand in the same operation.

    Sends and receives are counted by each rank for all of its partners in a group together, so that the numbers of a
    pair differ between its two ends; who sends to whom tells instead.
    """
    return _identity(one) == _counterpart(other)


Identity: TypeAlias = tuple[str, bool, tuple[str, int, int] | int]


def _identity(entry: FlightEntry) -> Identity:
    """What a rank does; the same as the counterpart of what its partners do."""
    ends = _ends(entry) if entry.point_to_point else None
    if ends is None:
        return entry.group, entry.point_to_point, entry.sequence
    return entry.group, True, (entry.operation[:4], *ends)


def _counterpart(entry: FlightEntry) -> Identity:
    group, pair, what = _identity(entry)
    if isinstance(what, int):
        return group, pair, what
    return group, pair, ("send" if what[0] == "recv" else "recv", what[1], what[2])


def _ends(entry: FlightEntry) -> tuple[int, int] | None:
    """(sender, receiver) of `send 0->1`, `recv 1<-0`, both (0, 1); None where it does not say."""
    found = _DIRECTION.search(entry.operation)
    if found is None:
        return None
    here, there = int(found[1]), int(found[3])
    return (here, there) if found[2] == "->" else (there, here)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place in the order of a group at which ranks call different things."""

    group: str
    sequence: int
    camps: tuple[tuple[str, tuple[int, ...]], ...]
    """(what is called, by whom), the largest camp first."""


EQUAL_INPUTS = ("all_reduce", "allreduce", "broadcast", "reduce", "_all_gather_base", "_allgather_base",
                "all_gather_into_tensor", "_reduce_scatter_base", "reduce_scatter_tensor", "all_gather_single",
                "reduce_scatter_single", "barrier")  # fmt: skip
"""Operations whose inputs are equally large on all ranks; of others they may differ."""


def mismatches(waiting: Waiting) -> tuple[tuple[Mismatch, ...], tuple[Mismatch, ...]]:
    """(operations that differ, sizes or types that differ): the first of each group that somebody has not finished."""
    at: dict[tuple[str, int], dict[int, FlightEntry]] = defaultdict(dict)
    for rank, dump in waiting.dumps.items():
        for entry in dump.entries:
            if not entry.point_to_point:
                at[entry.group, entry.sequence][rank] = entry
    orders: dict[str, Mismatch] = {}
    shapes: dict[str, Mismatch] = {}
    for (group, sequence), entries in sorted(at.items()):
        if all(entry.finished for entry in entries.values()):
            continue
        operations = _camps({rank: entry.operation for rank, entry in entries.items()})
        if len(operations) > 1:
            orders.setdefault(group, Mismatch(group, sequence, operations))
        elif operations[0][0] in EQUAL_INPUTS:
            sizes = _camps({rank: _sizes(entry) for rank, entry in entries.items() if entry.input_sizes})
            if len(sizes) > 1:
                shapes.setdefault(group, Mismatch(group, sequence, sizes))
    return tuple(orders.values()), tuple(shapes.values())


def _sizes(entry: FlightEntry) -> str:
    sizes = " ".join("x".join(map(str, size)) or "1" for size in entry.input_sizes)
    return f"{entry.operation} of {sizes} {' '.join(dict.fromkeys(entry.dtypes))}".strip()


def _camps(by_rank: Mapping[int, str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, list[int]] = defaultdict(list)
    for rank, what in by_rank.items():
        found[what].append(rank)
    ordered = sorted(found.items(), key=lambda camp: (-len(camp[1]), camp[1]))
    return tuple((what, tuple(sorted(ranks))) for what, ranks in ordered)
