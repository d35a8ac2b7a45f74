"""What makes the durations of compute differ: the stage, one rank, or what it has to do in that step.

A duration is that of its kind, times what its stage always takes, times what its rank always takes beside the other
replicas of the stage, times what is left. Each part is taken out in a replay of its own, so that its cost is the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.optable.grid import Floats, mean_there
from rankscope.analysis.imported.optable.layout import Layout
from rankscope.analysis.imported.optable.replay import Measured
from rankscope.analysis.imported.optable.whatif import replayed

SMALL = 0.01
"""Share of the compute below which a kind is too short to tell anything by its ratio."""


@dataclass(frozen=True, slots=True)
class Means:
    """Compute alone; NaN where nothing was recorded."""

    kinds: tuple[int, ...]
    """Numbers of the kinds that are work of a rank's own and take a measurable part of it."""
    per_step: Floats
    """[kind, stage, lane, step] mean of the operations of a kind in a step; steps of all blocks, ascending."""
    count: NDArray[np.int64]
    """[kind, stage] operations a step."""
    steps: NDArray[np.int64]

    @property
    def worker(self) -> Floats:
        """[kind, stage, lane]"""
        return mean_there(self.per_step, 3)

    @property
    def stage(self) -> Floats:
        """[kind, stage] what the lower half of its ranks reach: a stage is long only if most of its ranks are."""
        return lower_median(self.worker, axis=2)

    def stage_total(self) -> Floats:
        """[stage] ns of compute a step."""
        total: Floats = np.nansum(self.stage * self.count, axis=0)
        return total


def means(jobs: Sequence[Measured], where: Layout) -> Means:
    """Of all compute that is worth a look."""
    kinds = jobs[0].block.kinds
    totals = np.zeros(len(kinds))
    for m in jobs:
        for i, op in enumerate(m.block.ops):
            if not kinds[op.kind].communicates:
                totals[op.kind] += float(m.own[i].sum())
    kept = tuple(int(k) for k in np.flatnonzero(totals > SMALL * totals.sum()))
    parts, steps, counts = [], [], np.zeros((len(kept), where.num_stages), np.int64)
    for m in jobs:
        part = np.full((len(kept), where.num_stages, where.num_lanes, m.own.shape[1]), np.nan)
        for a, number in enumerate(kept):
            for stage in range(where.num_stages):
                rows = [i for i, op in enumerate(m.block.ops) if op.kind == number and op.stage == stage]
                if rows:
                    part[a, stage] = mean_there(m.block.duration[rows], 0).T
                    counts[a, stage] = max(counts[a, stage], len(rows))
        parts.append(part)
        steps.append(m.block.steps)
    order = np.argsort(np.concatenate(steps))
    return Means(kept, np.concatenate(parts, axis=3)[..., order], counts, np.concatenate(steps)[order])


def lower_median(values: Floats, axis: int) -> Floats:
    """Of an even number the smaller of the two in the middle; NaN are not there."""
    ordered = np.sort(values, axis=axis)
    there = np.isfinite(values).sum(axis=axis, keepdims=True)
    return np.take_along_axis(ordered, np.maximum(0, (there - 1) // 2), axis=axis).squeeze(axis)


Scale = Callable[[Measured, int], Floats | float]
"""(block, operation) -> by what its duration is multiplied, [step, lane] or one number."""


def without(jobs: Sequence[Measured], scale: Scale) -> float:
    """Mean ns of a step with durations multiplied."""
    return replayed(jobs, lambda m, i: m.own[i] * scale(m, i))


def even_stages(found: Means) -> Scale:
    """Every stage takes what the stages take in the mean: work is moved, not taken away."""
    profile = found.stage
    several = (np.isfinite(profile) & (found.count > 0)).sum(axis=1) > 1
    even = np.nansum(profile * found.count, axis=1) / np.maximum(1, found.count.sum(axis=1))
    at = {number: a for a, number in enumerate(found.kinds)}

    def scale(m: Measured, i: int) -> float:
        op = m.block.ops[i]
        a = at.get(op.kind)
        if a is None or not several[a] or not profile[a, op.stage] > 0:
            return 1.0
        return float(even[a] / profile[a, op.stage])

    return scale


def like_peers(found: Means, ratio: dict[tuple[int, int], Floats], since: dict[tuple[int, int], int]) -> Scale:
    """Some ranks take what the others of their stage take. `ratio`: (stage, lane) -> [kind]."""
    at = {number: a for a, number in enumerate(found.kinds)}

    def scale(m: Measured, i: int) -> Floats | float:
        op = m.block.ops[i]
        a = at.get(op.kind)
        slow = [place for place in ratio if place[0] == op.stage] if a is not None else []
        if not slow or a is None:
            return 1.0
        out = np.ones(m.own.shape[1:])
        for place in slow:
            late = m.block.steps >= since[place]
            out[late, place[1]] = 1 / max(1.0, float(ratio[place][a]))
        return out

    return scale
