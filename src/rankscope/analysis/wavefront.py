"""Where communication stopped: for each process group the first operation that not all of its ranks did alike.

Operations are matched by group and count. What stands before the stop was done by all; at the stop some ranks call one
operation and some another, or some come and others do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.records.collective import Collective, PendingCollective

DEFAULT = "group:default"
UNEQUAL = ("allgather", "alltoall", "gather", "scatter", "barrier", "allgather_coalesced", "reduce_scatter")
"""Operations whose inputs may differ between ranks: their outputs say what is expected."""
TAIL, ALL_TAILS = 4000, 64_000
"""Operations of a rank, and of all, from the end on: enough for habits, and little enough to be compared one by one."""
HISTORIES = (32, 16, 8, 4, 2, 1)
"""Calls before a call that are compared, the longest first."""
SEEN_OFTEN = 3
"""A history that came up less often tells nothing about what follows it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of one rank."""

    group: str
    sequence: int
    operation: str
    shape: str
    bytes: int
    site: Place | None
    time_ns: int
    step: int
    pair: bool = False
    """A send or receive, between two ranks."""

    @property
    def where(self) -> tuple[str, str, int]:
        """Operation and line: what a rank does again and again."""
        return (self.operation, self.site.file, self.site.line) if self.site else (self.operation, "", 0)

    @property
    def short(self) -> str:
        """`allreduce in train_epoch (train.py:36)`."""
        return f"{self.operation} in {self.site.short}" if self.site else self.operation


@dataclass(frozen=True, slots=True)
class Front:
    """The stop of one group."""

    group: str
    sequence: int
    entered: Mapping[int, Call]
    """Position of each rank that called something there."""
    absent: tuple[int, ...]
    """Positions of the group's other ranks."""

    @property
    def camps(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that called the same operation, the largest camp first."""
        by: dict[str, list[int]] = defaultdict(list)
        for position, call in self.entered.items():
            by[call.operation].append(position)
        return tuple(tuple(sorted(camp)) for camp in sorted(by.values(), key=lambda camp: (-len(camp), min(camp))))


def history(facts: Facts, position: int) -> tuple[Call, ...]:
    """The last operations of one rank in all groups, sends and receives too, oldest first."""
    return facts.once(_history, position)


def calls(facts: Facts, position: int) -> tuple[Call, ...]:
    """The same without sends and receives."""
    return tuple(call for call in history(facts, position) if not call.pair)


def _history(facts: Facts, position: int) -> tuple[Call, ...]:
    pid = facts.ranks[position].pid
    rows, last = (_of_process(facts, pid, kind) for kind in (Collective, PendingCollective))
    rows = np.concatenate([rows[-min(TAIL, ALL_TAILS // facts.size) :], last[~np.isin(last["a"], rows["a"])]])
    rows = rows[np.argsort(rows["time_ns"], kind="stable")]
    words = ("group", "sequence", "name", "shape", "bytes", "site", "point_to_point")
    fields = [column(rows, Collective, word).tolist() for word in words]
    times, steps = rows["time_ns"].tolist(), rows["step"].tolist()
    name = facts.tables.name
    return tuple(
        Call(
            name(pid, group), sequence, name(pid, operation), name(pid, shape), size,
            facts.place(position, site), time, step, bool(pair),
        )
        for group, sequence, operation, shape, size, site, pair, time, step in zip(*fields, times, steps, strict=True)
    )  # fmt: skip


def _of_process(facts: Facts, pid: int, kind: type[Collective] | type[PendingCollective]) -> Rows:
    rows: Rows = facts.tables.of(kind)
    mine: Rows = rows[rows["process"] == pid]
    return mine


def group_words(group: str) -> str:
    """`all ranks`, `group 3 of ranks 0,1`, `rank 0 to 1` of a send or receive."""
    sender, two_sided, receiver = group.rpartition(":")[2].partition(">")
    if two_sided:
        return f"rank {sender} to {receiver}"
    name, listed, ranks = group.removeprefix("group:").partition("|")
    return f"group {name} of ranks {ranks}" if listed else "all ranks"


def members(facts: Facts, group: str) -> tuple[int, ...]:
    """Positions of the ranks of a process group, as far as they were observed."""
    _, known, listed = group.partition("|")
    numbers = {int(x) for x in listed.split(",") if x.isdigit()} if known else None
    return tuple(p for p, rank in enumerate(facts.ranks) if numbers is None or rank.rank in numbers)


def fronts(facts: Facts) -> tuple[Front, ...]:
    """The stop of each group whose ranks did not all do the same to the end; the earliest one first."""
    return facts.once(_fronts)


def _fronts(facts: Facts) -> tuple[Front, ...]:
    by_group: dict[str, dict[int, dict[int, Call]]] = defaultdict(dict)
    for position in range(facts.size):
        for call in calls(facts, position):
            by_group[call.group].setdefault(position, {})[call.sequence] = call
    found = [front for group, own in by_group.items() if (front := _front(facts, group, own)) is not None]
    return tuple(sorted(found, key=lambda front: min(call.time_ns for call in front.entered.values())))


def _front(facts: Facts, group: str, own: Mapping[int, Mapping[int, Call]]) -> Front | None:
    everyone = members(facts, group)
    if len(everyone) < 2:
        return None
    first = max((min(sequences) for sequences in own.values() if sequences), default=0)
    last = max(max(sequences) for sequences in own.values())
    for sequence in range(first, last + 1):
        entered = {p: own[p][sequence] for p in everyone if sequence in own.get(p, {})}
        absent = tuple(p for p in everyone if p not in entered)
        if absent or len({call.operation for call in entered.values()}) > 1:
            return Front(group, sequence, entered, absent)
    return None


def last_front(facts: Facts, group: str) -> Front | None:
    """The last operation that all ranks of a group called: where sizes that differ have stopped them."""
    by_rank = {p: [c for c in calls(facts, p) if c.group == group] for p in members(facts, group)}
    if len(by_rank) < 2 or not all(by_rank.values()):
        return None
    sequence = min(own[-1].sequence for own in by_rank.values())
    entered = {p: next(c for c in reversed(own) if c.sequence == sequence) for p, own in by_rank.items()}
    return Front(group, sequence, entered, ())


def habit(facts: Facts, position: int, call: Call, until_ns: int) -> tuple[int, int]:
    """How often some rank did `call` after the same history, and how often it did anything then; until the stop.

    The history is as long as has been seen often enough: of 14 equal calls in a step only the whole step before tells
    that a 15th is one too many. (0, n): nobody has ever done so.
    """
    tokens = facts.once(_tokens, position)
    at = history(facts, position).index(call)
    for length in HISTORIES:
        if length > at:
            continue
        seen = facts.once(_followers, length).get(tokens[at - length : at], ())
        before = [where for time_ns, where in seen if time_ns < until_ns]
        if len(before) >= SEEN_OFTEN:
            return before.count(call.where), len(before)
    return 0, 0


def _tokens(facts: Facts, position: int) -> tuple[Hashable, ...]:
    """For each call of a rank what it is in its history: operation, line, and whether it was the first of its step."""
    own = history(facts, position)
    steps = [None, *(call.step for call in own)]
    return tuple((call.where, call.step != before) for call, before in zip(own, steps[:-1], strict=True))


def _followers(facts: Facts, length: int) -> dict[tuple[Hashable, ...], list[tuple[int, tuple[str, str, int]]]]:
    """History of that length -> time and place of each call that came after it, on any rank."""
    found: dict[tuple[Hashable, ...], list[tuple[int, tuple[str, str, int]]]] = defaultdict(list)
    for position in range(facts.size):
        tokens = facts.once(_tokens, position)
        for at, call in enumerate(history(facts, position)):
            if at >= length:
                found[tokens[at - length : at]].append((call.time_ns, call.where))
    return found


def known_to(facts: Facts, positions: Iterable[int], call: Call) -> bool:
    """Whether all of these ranks have called the same operation in the same line before."""
    return all(any(c.where == call.where and c.time_ns < call.time_ns for c in history(facts, p)) for p in positions)


def call_before(facts: Facts, position: int, call: Call) -> Call | None:
    """What the rank called before, in any group."""
    own = history(facts, position)
    at = own.index(call)
    return own[at - 1] if at else None
