"""The dependency graph of a step: what each operation waits for.

Written down by program order on each rank (compute on one stream, each kind of transfer on its own) and by who takes
part in a transfer or a sync; what overlaps with compute hangs on where it usually begins and what usually follows it.
After "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25), for any set of operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rankscope.analysis.imported.optable.grid import Block, Floats, mean_there
from rankscope.analysis.imported.optable.kinds import BACKWARD, SEND
from rankscope.analysis.imported.optable.transfers import TOGETHER_NS, Transfers, transfers

OVERLAP = 0.1
"""Share of an operation that may lie beside compute before it is one that runs beside it."""


class Circular(Exception):
    """Operations that wait for each other: the order of the table cannot be that of the program."""


@dataclass(frozen=True, slots=True)
class Graph:
    """[op] each."""

    after: tuple[tuple[int, ...], ...]
    """Operations that must have ended before it starts."""
    inside: tuple[tuple[int, float] | None, ...]
    """(operation during which it starts, share of that which has passed by then)."""
    with_: tuple[tuple[int, ...], ...]
    """Operations that must have started before it can end: the other ends of a transfer, the other stages of a sync."""
    replicas: tuple[bool, ...]
    """Whether all lanes must have started it as well."""
    order: tuple[int, ...]
    """In which a replay goes: `2 * op` is its start, `2 * op + 1` its end."""
    unmatched: int
    """Transfers without their other end."""


@dataclass(slots=True)
class _Edges:
    """The graph while it is put together."""

    after: list[set[int]]
    inside: list[tuple[int, float] | None]
    with_: list[set[int]] = field(default_factory=list)


def graph(block: Block, num_stages: int) -> Graph:
    """Raises `Circular`."""
    count = len(block.ops)
    start, end = usual_times(block)
    found = transfers(block, start, end, num_stages)
    edges = _Edges([set() for _ in range(count)], [None] * count, [set() for _ in range(count)])
    for stage in range(num_stages):
        _stage(block, stage, start, end, edges)
    _transfers(block, start, found, edges)
    for i, op in enumerate(block.ops):
        if block.kinds[op.kind].stages:
            edges.with_[i] |= {
                j for j, o in enumerate(block.ops) if j != i and o.kind == op.kind and o.order == op.order
            }
    replicas = tuple(block.kind_of(i).replicas for i in range(count))
    return Graph(
        tuple(tuple(sorted(a)) for a in edges.after),
        tuple(edges.inside),
        tuple(tuple(sorted(w)) for w in edges.with_),
        replicas,
        _order(edges),
        found.unmatched,
    )


def usual_times(block: Block) -> tuple[Floats, Floats]:
    """[op] mean start and end, over the lanes and steps that have all operations of the stage if there are any."""
    start, end = np.empty(len(block.ops)), np.empty(len(block.ops))
    stages = np.array([op.stage for op in block.ops])
    for stage in np.unique(stages):
        rows = np.flatnonzero(stages == stage)
        whole = np.isfinite(block.start[rows]).all(axis=0)
        if not whole.any():
            whole = np.ones_like(whole)
        start[rows] = mean_there(block.start[rows][:, whole], 1)
        end[rows] = mean_there(block.end[rows][:, whole], 1)
    return start, end


def _stage(block: Block, stage: int, start: Floats, end: Floats, edges: _Edges) -> None:
    """Program order on the ranks of one stage."""
    mine = [i for i, op in enumerate(block.ops) if op.stage == stage and not block.kind_of(i).roles]
    mine.sort(key=lambda i: (start[i], end[i], i))
    busy = [(start[i], end[i]) for i in mine if block.kind_of(i).compute]
    beside = [i for i in mine if not block.kind_of(i).compute and _covered(start[i], end[i], busy) > OVERLAP]
    chain = [i for i in mine if i not in set(beside)]
    for before, this in pairwise(chain):
        edges.after[this].add(before)
    streams: dict[bool, int] = {}
    for i in mine:
        # Collectives of one rank follow each other, those that overlap with compute and those that do not.
        if block.kind_of(i).replicas:
            last = streams.get(True)
            if last is not None and end[last] <= start[i] + TOGETHER_NS:
                edges.after[i].add(last)
            streams[True] = i
    for i in beside:
        _beside(i, chain, start, end, edges)


def _beside(i: int, chain: list[int], start: Floats, end: Floats, edges: _Edges) -> None:
    """What runs beside compute: it starts where it usually does, and what usually comes after it waits for it."""
    during = [c for c in chain if start[c] <= start[i] < end[c] - TOGETHER_NS]
    before = [c for c in chain if end[c] <= start[i] + TOGETHER_NS]
    if during:
        c = during[-1]
        edges.inside[i] = (c, float((start[i] - start[c]) / (end[c] - start[c])))
    elif before:
        edges.after[i].add(before[-1])
    following = [c for c in chain if start[c] >= end[i] - TOGETHER_NS]
    if following:
        edges.after[following[0]].add(i)


def _covered(start: float, end: float, spans: list[tuple[float, float]]) -> float:
    """Share of a span that lies in others, which do not overlap."""
    if end <= start:
        return 0.0
    return float(sum(max(0.0, min(end, b) - max(start, a)) for a, b in spans) / (end - start))


def _transfers(block: Block, start: Floats, found: Transfers, edges: _Edges) -> None:
    computes: dict[tuple[int, str], list[int]] = {}
    for i, op in enumerate(block.ops):
        if block.kind_of(i).compute:
            computes.setdefault((op.stage, block.kind_of(i).compute), []).append(i)
    for own in computes.values():
        own.sort(key=lambda i: (start[i], i))
    for (i, role), c in found.compute.items():
        if role[1] == SEND:
            edges.after[i].add(c)
            continue
        edges.after[c].add(i)
        own = computes[block.ops[c].stage, role[0]]
        at = own.index(c)
        if at:
            # A receive is posted when the compute before it is done.
            edges.after[i].add(own[at - 1])
        elif role[0] == BACKWARD:
            here = block.ops[c].stage
            both = [k for place, passes in computes.items() if place[0] == here for k in passes]
            both.sort(key=lambda k: start[k])
            if both.index(c) >= 2:
                edges.after[i].add(both[both.index(c) - 2])
    streams: dict[tuple[int, int], list[int]] = {}
    for i, op in enumerate(block.ops):
        if block.kind_of(i).roles:
            streams.setdefault((op.stage, op.kind), []).append(i)
    for own in streams.values():
        own.sort(key=lambda i: (start[i], i))
        for before, this in pairwise(own):
            edges.after[this].add(before)
    for i, others in found.partner.items():
        edges.with_[i] |= others


def _order(edges: _Edges) -> tuple[int, ...]:
    """Starts and ends so that each comes after what it needs (Kahn)."""
    count = len(edges.after)
    needs: list[list[int]] = [[] for _ in range(2 * count)]
    for i in range(count):
        needs[2 * i] = [2 * u + 1 for u in edges.after[i]]
        inside = edges.inside[i]
        if inside is not None:
            needs[2 * i].append(2 * inside[0])
        needs[2 * i + 1] = [2 * i, *(2 * u for u in edges.with_[i])]
    waiting = [len(n) for n in needs]
    frees: list[list[int]] = [[] for _ in range(2 * count)]
    for node, own in enumerate(needs):
        for u in own:
            frees[u].append(node)
    ready = [node for node, left in enumerate(waiting) if not left]
    order: list[int] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for after in frees[node]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    if len(order) < 2 * count:
        raise Circular("operations wait for each other in a circle: their order cannot be that of the program")
    return tuple(order)


