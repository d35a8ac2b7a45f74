"""Ranks that are slower than the other replicas of their stage, in all that they compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import MATERIAL, SHARE_OF_WORST
from rankscope.analysis.imported.optable.effects import Means, lower_median
from rankscope.analysis.imported.optable.grid import Floats, mean_there
from rankscope.analysis.imported.optable.layout import Layout

Ints = NDArray[np.int64]

STEADY = 0.8
"""Share of the steps in which the rank must be the slower one."""
ALIKE = 1.6
"""Largest over smallest ratio of the operation types: a device slows all kernels by about the same factor."""
FEWEST_STEPS = 3
"""From a change on: what lasts two steps is a disturbance."""


@dataclass(frozen=True, slots=True)
class SlowRank:
    """One rank, and how much slower it is."""

    rank: int
    stage: int
    lane: int
    ratio: Floats
    """[kind] over its peers; NaN for a kind that it does not have."""
    since: int
    """The first step with it."""
    always: bool
    steady: float
    """Share of the steps since then in which it is slower."""
    alike: bool
    """All kinds are slower, by about the same factor."""

    @property
    def factor(self) -> float:
        return float(np.nanmedian(self.ratio))


def slow_ranks(found: Means, where: Layout) -> list[SlowRank]:
    """The slowest first; none where a stage has one rank: nobody does the same work."""
    if where.num_lanes < 2:
        return []
    slow = []
    weight = found.count[:, :, None, None]
    for stage in range(where.num_stages):
        own = found.per_step[:, stage]
        peers = lower_median(own, axis=1)
        total = np.nansum(own * weight[:, stage], axis=0)
        usual = np.nansum(peers * weight[:, stage, 0], axis=0)
        for lane in range(where.num_lanes):
            rank = where.at(lane, stage)
            if rank is None or not np.isfinite(own[:, lane]).any():
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                late = np.where(usual > 0, total[lane] / usual, np.nan)
            one = _slow((rank, stage, lane), late, own[:, lane], peers, found.steps)
            if one is not None:
                slow.append(one)
    slow.sort(key=lambda s: -s.factor)
    worst = slow[0].factor - 1 if slow else 0.0
    return [s for s in slow if s.factor - 1 >= SHARE_OF_WORST * worst]


def _slow(place: tuple[int, int, int], late: Floats, own: Floats, peers: Floats, steps: Ints) -> SlowRank | None:
    """`place`: rank, stage and lane; `late`: [step] its compute over its peers'; `own` and `peers`: [kind, step]."""
    known = np.isfinite(late)
    begin = _since(late[known] > 1 + MATERIAL)
    if begin is None:
        return None
    first = int(np.flatnonzero(known)[begin])
    after = np.zeros(len(late), bool)
    after[first:] = known[first:]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = mean_there(own[:, after], 1) / mean_there(peers[:, after], 1)
    there = ratio[np.isfinite(ratio)]
    alike = bool(len(there) and there.min() > 1 + MATERIAL and there.max() / there.min() <= ALIKE)
    return SlowRank(
        rank=place[0],
        stage=place[1],
        lane=place[2],
        ratio=ratio,
        since=int(steps[first]),
        always=begin == 0,
        steady=float(np.mean(late[after] > 1 + MATERIAL)),
        alike=alike,
    )


def _since(slower: NDArray[np.bool_]) -> int | None:
    """From which step on it is slower in most; None where it is not at the end."""
    count = len(slower)
    if not count:
        return None
    if slower.mean() >= STEADY:
        return 0
    # The share of slow steps from each step to the end.
    share = np.cumsum(slower[::-1])[::-1] / np.arange(count, 0, -1)
    fits = np.flatnonzero((share >= STEADY) & slower)
    if not len(fits) or count - fits[0] < max(FEWEST_STEPS, 0.1 * count):
        return None
    return int(fits[0])
