"""Sends and receives between stages: which compute each belongs to, and which one is its other end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rankscope.analysis.imported.optable.grid import Block, Floats
from rankscope.analysis.imported.optable.kinds import BACKWARD, FORWARD, RECEIVE, SEND, Role

TOGETHER_NS = 50_000
"""Clocks of nodes differ by about that much: what lies closer is not told apart."""
TOWARDS = {(FORWARD, SEND): 1, (FORWARD, RECEIVE): -1, (BACKWARD, SEND): -1, (BACKWARD, RECEIVE): 1}
"""Where the other end is: on the next stage or the one before."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Between the operations of one block."""

    compute: dict[tuple[int, Role], int]
    """(transfer, what it does) -> the compute that it is for."""
    partner: dict[int, set[int]]
    """Transfer -> its other ends."""
    unmatched: int
    """Transfers whose other end is not in the table."""


def transfers(block: Block, start: Floats, end: Floats, num_stages: int) -> Transfers:
    """`start` and `end`: of each operation, as it usually is."""
    compute: dict[tuple[int, Role], int] = {}
    ordered: dict[tuple[int, Role], list[int]] = {}
    pieces = num_stages * max(1, 1 + max((o.chunk for o in block.ops), default=0))
    for stage in range(num_stages):
        on_stage = [i for i, op in enumerate(block.ops) if op.stage == stage]
        for role in TOWARDS:
            mine = sorted((i for i in on_stage if role in block.kind_of(i).roles), key=lambda i: (start[i], i))
            work = sorted((i for i in on_stage if block.kind_of(i).compute == role[0]), key=lambda i: (start[i], i))
            if not mine or not work:
                continue
            ends_here = {i: _at_the_end(block, i, role, num_stages, pieces) for i in work}
            ordered[stage, role] = []
            for i, c in _matched(mine, ends_here, role, start, end):
                compute[i, role] = c
                if not ends_here[c]:
                    ordered[stage, role].append(i)
    partner: dict[int, set[int]] = defaultdict(set)
    unmatched = 0
    for direction in (FORWARD, BACKWARD):
        for stage in range(num_stages):
            there = (stage + TOWARDS[direction, SEND]) % num_stages
            sent = ordered.get((stage, (direction, SEND)), [])
            received = ordered.get((there, (direction, RECEIVE)), [])
            unmatched += abs(len(sent) - len(received))
            # First in, first out: a channel between two ranks keeps its order.
            for a, b in zip(sent, received, strict=False):
                if a != b:
                    partner[a].add(b)
                    partner[b].add(a)
    return Transfers(compute, dict(partner), unmatched)


def _at_the_end(block: Block, op: int, role: Role, num_stages: int, pieces: int) -> bool:
    """Whether there is nobody on the other side: the first piece of the model receives no input, the last sends none.

    Megatron's own profiler records such transfers with an interleaved pipeline; nothing is sent.
    """
    piece = max(0, block.ops[op].chunk) * num_stages + block.ops[op].stage
    return not 0 <= piece + TOWARDS[role] < pieces


def _matched(
    mine: list[int], ends_here: dict[int, bool], role: Role, start: Floats, end: Floats
) -> list[tuple[int, int]]:
    """(transfer, compute) in order. `ends_here`: each compute, whether nobody is on its other side."""
    work = list(ends_here)
    inner = [c for c in work if not ends_here[c]]
    if len(mine) > len(work):
        # Recorded before the first or after the last compute: posted, never launched.
        if role[1] == RECEIVE:
            mine = [i for i in mine if start[i] <= start[work[-1]] + TOGETHER_NS][: len(work)]
        else:
            first_done = min(end[c] for c in work)
            mine = [i for i in mine if end[i] >= first_done - TOGETHER_NS][-len(work) :]
    if len(mine) == len(work):
        return list(zip(mine, work, strict=True))
    if len(mine) == len(inner):
        return list(zip(mine, inner, strict=True))
    if role[1] == RECEIVE and len(mine) == len(work) - 1:
        return list(zip(mine, work[1:], strict=True))
    return _matched_by_time(mine, inner, role, start, end)


def _matched_by_time(
    mine: list[int], work: list[int], role: Role, start: Floats, end: Floats
) -> list[tuple[int, int]]:
    """A receive is for the first compute after it, a send for the last one before it; each compute once."""
    found: list[tuple[int, int]] = []
    free = list(work)
    for i in mine:
        if role[1] == RECEIVE:
            fits = [c for c in free if start[c] >= end[i] - TOGETHER_NS][:1]
        else:
            fits = [c for c in free if end[c] <= start[i] + TOGETHER_NS][-1:]
        if fits:
            found.append((i, fits[0]))
            free = free[free.index(fits[0]) + 1 :]
    return found
