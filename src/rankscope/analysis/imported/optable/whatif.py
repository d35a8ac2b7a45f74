"""How much slower a job is than without stragglers, and whose they are.

S, S_w, S_t, M_W and M_S of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25): ideal
is the mean duration of an operation type over all ranks and steps, of communication the median of the transfer alone.
Actual is the replay with the measured durations: time that no operation accounts for is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.optable.graph import graph
from rankscope.analysis.imported.optable.grid import Block, Floats
from rankscope.analysis.imported.optable.layout import Layout
from rankscope.analysis.imported.optable.replay import Measured, own_durations, replay

AT_ONCE = 1 << 23
"""Numbers that one replay may hold (64 MB); more scenarios than fit are replayed one after the other."""
WORST = 0.03
"""Of the ranks, the slowest share whose part in the slowdown is M_W (the paper's choice)."""
NOTHING = 1.005
"""S below which there is nothing to share out: the parts would be noise over noise."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Times in ns, means over steps; S and its parts."""

    actual_ns: float
    ideal_ns: float
    by_rank: dict[int, float]
    """S_w: the smaller of the slowdowns by the rank's replica and by its stage, as the paper estimates it."""
    by_stage: dict[int, float]
    """[stage as named in the table]"""
    by_operation: dict[str, float]
    worker_share: float | None
    stage_share: float | None

    @property
    def slowdown(self) -> float:
        return self.actual_ns / self.ideal_ns


def measured(blocks: Sequence[Block], num_stages: int) -> list[Measured]:
    """The blocks with their graphs and ideal durations. Raises `Circular`."""
    graphs = [graph(block, num_stages) for block in blocks]
    own = [own_durations(block, g) for block, g in zip(blocks, graphs, strict=True)]
    kinds = blocks[0].kinds
    ideals = np.zeros(len(kinds))
    for number, kind in enumerate(kinds):
        rows = [
            o[[i for i, op in enumerate(block.ops) if op.kind == number]] for block, o in zip(blocks, own, strict=True)
        ]
        values = np.concatenate([row[np.isfinite(row)] for row in rows])
        if len(values):
            ideals[number] = np.median(values) if kind.communicates else values.mean()
    found = []
    for block, g, o in zip(blocks, graphs, own, strict=True):
        ideal = np.array([ideals[op.kind] for op in block.ops])
        found.append(Measured(block, g, np.where(np.isfinite(o), o, ideal[:, None, None]), ideal))
    return found


def whatif(jobs: Sequence[Measured], where: Layout) -> WhatIf:
    """All slowdowns of a job."""
    actual, ideal = replayed(jobs, lambda m, i: m.own[i]), replayed(jobs, lambda m, i: m.ideal[i])
    stages = range(where.num_stages)
    by_stage = _only(jobs, lambda m, i: m.block.ops[i].stage, stages) / ideal
    groups = sorted({m.block.kind_of(i).group for m in jobs for i in range(len(m.block.ops))})
    by_group = _only(jobs, lambda m, i: m.block.kind_of(i).group, groups) / ideal
    by_lane = _by_lane(jobs, where.num_lanes) / ideal
    by_rank = {
        int(rank): float(min(by_lane[where.lane[i]], by_stage[where.stage[i]])) for i, rank in enumerate(where.ranks)
    }
    worker_share = stage_share = None
    if actual / ideal > NOTHING:
        if len(where.ranks) > 1:
            worst = sorted(by_rank, key=lambda r: (-by_rank[r], r))[: -(-len(by_rank) * 3 // 100)]
            without = replayed(jobs, ideal_at(where, set(worst)))
            worker_share = (actual - without) / (actual - ideal)
        if where.num_stages > 1:
            last = set(where.of_stage(where.num_stages - 1))
            stage_share = (actual - replayed(jobs, ideal_at(where, last))) / (actual - ideal)
    return WhatIf(
        actual,
        ideal,
        by_rank,
        {where.stage_names[s]: float(by_stage[s]) for s in stages},
        {group: float(s) for group, s in zip(groups, by_group, strict=True)},
        worker_share,
        stage_share,
    )


def replayed(jobs: Sequence[Measured], durations: Callable[[Measured, int], Floats | np.float64]) -> float:
    """Mean ns of a step where each operation takes the given time, [step, lane] or anything that broadcasts to it."""
    return float(np.concatenate([steps_replayed(m, durations) for m in jobs]).mean())


def steps_replayed(m: Measured, durations: Callable[[Measured, int], Floats | np.float64]) -> Floats:
    """[step] ns."""
    _, steps, lanes = m.own.shape

    def each(i: int) -> Floats:
        return np.atleast_2d(durations(m, i))[None].astype(np.float64, copy=False)

    whole: Floats = replay(m.graph, each, (1, steps, lanes))[0]
    return whole


def ideal_at(where: Layout, ranks: set[int]) -> Callable[[Measured, int], Floats]:
    """As measured, but with ideal durations on some ranks."""
    chosen = np.zeros((where.num_stages, where.num_lanes), bool)
    for i, rank in enumerate(where.ranks):
        chosen[where.stage[i], where.lane[i]] |= int(rank) in ranks

    def durations(m: Measured, i: int) -> Floats:
        mixed: Floats = np.where(chosen[m.block.ops[i].stage], m.ideal[i], m.own[i])
        return mixed

    return durations


def _only(jobs: Sequence[Measured], key: Callable[[Measured, int], object], values: Sequence[object]) -> Floats:
    """[value] mean ns of a step where only the operations with that key are as measured, all others ideal."""
    parts = []
    for m in jobs:
        count, steps, lanes = m.own.shape
        keys = [key(m, i) for i in range(count)]
        at_once = max(1, AT_ONCE // max(1, 2 * count * steps * lanes))
        parts.append(
            np.concatenate([_some(m, keys, values[i : i + at_once]) for i in range(0, len(values), at_once)])
        )
    mean: Floats = np.concatenate(parts, axis=1).mean(axis=1)
    return mean


def _some(m: Measured, keys: list[object], values: Sequence[object]) -> Floats:
    """[value, step] ns."""
    masks = np.array([[key == value for value in values] for key in keys], bool)
    _, steps, lanes = m.own.shape

    def durations(i: int) -> Floats:
        if not masks[i].any():
            return np.full((1, 1, 1), m.ideal[i])
        mixed: Floats = np.where(masks[i][:, None, None], m.own[i], m.ideal[i])
        return mixed

    return replay(m.graph, durations, (len(values), steps, lanes))


def _by_lane(jobs: Sequence[Measured], num_lanes: int) -> Floats:
    """[lane] mean ns of a step where only that lane is as measured."""
    parts = []
    for m in jobs:
        count, steps, _ = m.own.shape
        at_once = max(1, AT_ONCE // max(1, 4 * count * steps))
        parts.append(np.concatenate([_lanes(m, slice(i, i + at_once)) for i in range(0, num_lanes, at_once)]))
    mean: Floats = np.concatenate(parts, axis=1).mean(axis=1)
    return mean


def _lanes(m: Measured, some: slice) -> Floats:
    """[lane, step] ns. The lanes that are not as measured are all alike: beside it, one of them tells everything."""
    own = m.own[:, :, some]
    _, steps, size = own.shape
    others = min(1, m.own.shape[2] - 1)

    def durations(i: int) -> Floats:
        pair = np.full((size, steps, 1 + others), m.ideal[i])
        pair[:, :, 0] = own[i].T
        return pair

    return replay(m.graph, durations, (size, steps, 1 + others))
