"""Where communication stopped: for each process group the first operation that not all of its ranks did alike.

Operations are matched by group and count. What stands before the stop was done by all; at the stop some ranks call one
operation and some another, or some come and others do not.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.records.collective import Collective

DEFAULT = "group:default"
UNEQUAL = ("allgather", "alltoall", "gather", "scatter", "barrier", "allgather_coalesced", "reduce_scatter")
"""Operations whose inputs may differ between ranks: their outputs say what is expected."""
TAIL = 4000
"""Operations of a rank from its end on: enough for its habits, and little enough to be compared one by one."""


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


def calls(facts: Facts, position: int) -> tuple[Call, ...]:
    """The last operations of one rank in all groups, sends and receives left out, oldest first."""
    return facts.once(_calls, position)


def _calls(facts: Facts, position: int) -> tuple[Call, ...]:
    rank = facts.ranks[position]
    rows = facts.tables.of(Collective)
    rows = rows[(rows["process"] == rank.pid) & (column(rows, Collective, "point_to_point") == 0)][-TAIL:]
    words = ("group", "sequence", "name", "shape", "bytes", "site")
    fields = [column(rows, Collective, word).tolist() for word in words]
    times, steps = rows["time_ns"].tolist(), rows["step"].tolist()
    name = facts.tables.name
    return tuple(
        Call(
            name(rank.pid, group), sequence, name(rank.pid, operation), name(rank.pid, shape), size,
            facts.place(position, site), time, step,
        )
        for group, sequence, operation, shape, size, site, time, step in zip(*fields, times, steps, strict=True)
    )  # fmt: skip


def group_words(group: str) -> str:
    """`all ranks`, `group 3 of ranks 0,1`."""
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


def habit(facts: Facts, before: Call | None, call: Call, until_ns: int) -> tuple[int, int]:
    """How often some rank did `call` right after what `before` is, and how often it did anything after that.

    Until the stop, by operation and line. (0, n): nobody has ever done so.
    """
    after: Counted[tuple[str, str, int]] = Counted()
    wanted = before.where if before else ("", "", 0)
    for position in range(facts.size):
        own: Sequence[Call] = calls(facts, position)
        for earlier, later in pairwise(own):
            if earlier.where == wanted and later.time_ns < until_ns:
                after[later.where] += 1
    return after[call.where], sum(after.values())


def call_before(facts: Facts, position: int, call: Call) -> Call | None:
    """What the rank called before, in any group."""
    own = calls(facts, position)
    at = own.index(call)
    return own[at - 1] if at else None
