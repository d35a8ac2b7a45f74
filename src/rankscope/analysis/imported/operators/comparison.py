"""Where the collectives of ranks differ that belong together.

Calls of one group are matched by their sequence number where the backend wrote it, else by their place in the same
step. Only what lies inside the range that all traces cover is compared: traces begin and end at different calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rankscope.analysis.imported.operators.digest import TraceDigest
from rankscope.records.imported.execution_trace import CollectiveCall, Group

EVEN: Final = ("allreduce", "all_reduce", "broadcast", "reduce", "allreduce_coalesced", "_allgather_base", "allgather",
               "all_gather", "allgather_into_tensor_coalesced", "_reduce_scatter_base", "reduce_scatter", "barrier",
               "allgather_base", "reduce_scatter_base")  # fmt: skip
"""Operations to which every rank brings as much; of others (all-to-all, gather, send) sizes may differ."""
PAIRWISE: Final = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "coalesced")
"""Of two ranks alone: the others have no such call, and each end counts for itself."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where ranks of one group differ."""

    cause: str
    group: Group
    ranks: tuple[int, ...]
    """The minority; all where there is none."""
    all_ranks: bool
    where: str
    """`call 35`, or `call 3 of step 12`."""
    step: int
    said: tuple[tuple[str, tuple[int, ...]], ...]
    """(what they did, which ranks)"""
    count: int
    """Places with this kind of difference."""


def differences(digests: Sequence[TraceDigest]) -> tuple[list[Difference], int]:
    """(the differences, number of groups that could be compared)."""
    calls: dict[tuple[str, int, int, int], dict[int, list[CollectiveCall]]] = defaultdict(dict)
    groups: dict[tuple[str, int, int, int], Group] = {}
    for d in digests:
        assert d.rank is not None
        for call in d.collectives:
            if call.group < 0 or call.operation in PAIRWISE:
                continue
            group = d.groups[call.group]
            key = (group.name, group.first_rank, group.stride, group.size)
            groups.setdefault(key, group)
            calls[key].setdefault(d.rank, []).append(call)
    # A member that calls nothing at all of a group in the same steps counts as well.
    steps = set.intersection(*(set(d.steps) for d in digests)) if digests else set()
    found: list[Difference] = []
    compared = 0
    for key, by_rank in calls.items():
        members = _members(groups[key])
        for d in digests:
            if steps and d.rank in members and d.rank not in by_rank:
                by_rank[d.rank] = []
        if len(by_rank) < 2:
            continue
        compared += 1
        found += _of_group(groups[key], by_rank, steps)
    return found, compared


def _members(group: Group) -> set[int]:
    if group.first_rank < 0 or group.stride < 0 or not 0 < group.size < 1 << 20:
        return set()
    return {group.first_rank + group.stride * i for i in range(group.size)}


def _of_group(group: Group, by_rank: dict[int, list[CollectiveCall]], steps: set[int]) -> list[Difference]:
    places: list[tuple[str, int, dict[int, CollectiveCall | None]]] = []
    if all(calls and _counted(calls) for calls in by_rank.values()):
        first = max(calls[0].sequence for calls in by_rank.values())
        last = min(calls[-1].sequence for calls in by_rank.values())
        table = {rank: {call.sequence: call for call in calls} for rank, calls in by_rank.items()}
        numbers = sorted({n for own in table.values() for n in own if first <= n <= last})
        for number in numbers:
            at = {rank: own.get(number) for rank, own in table.items()}
            places.append((f"call {number}", max(c.step for c in at.values() if c is not None), at))
    else:
        for step in sorted(steps):
            rows = {rank: [c for c in calls if c.step == step] for rank, calls in by_rank.items()}
            for i in range(max(len(own) for own in rows.values())):
                at = {rank: own[i] if i < len(own) else None for rank, own in rows.items()}
                places.append((f"call {i + 1} of step {step}", step, at))
    found: dict[str, Difference] = {}
    counts: Counter[str] = Counter()
    for where, step, at in places:
        cause = _cause(at)
        if cause is None:
            continue
        counts[cause] += 1
        # After a missing call everything is shifted: only the first place tells.
        found.setdefault(cause, _difference(cause, group, where, step, at))
    return [replace(d, count=counts[d.cause]) for d in list(found.values())[:1]]


def _counted(calls: list[CollectiveCall]) -> bool:
    """Whether sequence numbers count the calls one by one."""
    return all(c.sequence >= 0 for c in calls) and all(b.sequence > a.sequence for a, b in pairwise(calls))


def _cause(at: dict[int, CollectiveCall | None]) -> str | None:
    there = [c for c in at.values() if c is not None]
    if len(there) < len(at):
        return "missing-collective"
    if len({c.operation for c in there}) > 1:
        return "collective-order-mismatch"
    if there[0].operation in EVEN and len({_shape(c) for c in there}) > 1:
        return "collective-shape-mismatch"
    return None


def _shape(c: CollectiveCall) -> tuple[str, int]:
    return c.dtype, c.in_elements


def _difference(
    cause: str, group: Group, where: str, step: int, at: dict[int, CollectiveCall | None]
) -> Difference:
    said: dict[str, list[int]] = defaultdict(list)
    for rank, call in sorted(at.items()):
        said[_text(call, cause)].append(rank)
    sides = sorted(said.items(), key=lambda side: -len(side[1]))
    odd = [rank for _, ranks in sides[1:] for rank in ranks]
    even = len(sides[0][1]) == len(sides[1][1])
    if even and cause == "missing-collective":
        odd, even = said["nothing"], False
    ranks = tuple(sorted(at)) if even else tuple(sorted(odd))
    return Difference(cause, group, ranks, even, where, step, tuple((t, tuple(r)) for t, r in sides), 1)


def _text(call: CollectiveCall | None, cause: str) -> str:
    if call is None:
        return "nothing"
    if cause == "collective-order-mismatch":
        return call.operation
    return f"{call.operation} of {call.in_elements:,} {call.dtype.lower() or 'elements'}"
