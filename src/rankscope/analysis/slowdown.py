"""How much slower the run is than without the differences between ranks, and whose differences they are.

The method of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25): replace durations by
the ideal (here the median over ranks of the same phase in the same step) and replay the dependency graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts, Ints


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The slowdown and whose it is, in the paper's terms; None where it cannot be told."""

    slowdown: float | None
    """S: actual over ideal time."""
    by_rank: dict[int, float] | None
    """S_w: with everything ideal but this rank."""
    by_phase: dict[str, float] | None
    """S_t: with everything ideal but this phase."""
    worker_share: float | None
    """M_W: the share of the slowdown that idealising the slowest 3 % of ranks (at least one) removes."""


def slowdown(facts: Facts) -> Slowdown:
    """None everywhere for a single rank: there is nobody to compare with."""
    if facts.size < 2:
        return Slowdown(None, None, None, None)
    scale = _scales(facts)

    def replayed(keep: set[int], phase: str | None = None) -> float:
        """The run's time, as a share of the measured one, when all ranks but `keep` take the ideal time.

        With `phase`, that phase stays as it was on all ranks.
        """

        def change(position: int, durations: Ints) -> Ints | None:
            if position in keep:
                return None
            factors = scale[position]
            if phase is not None:
                factors = np.where(facts.phases(position) == phase, 1.0, factors)
            return np.asarray(durations * factors, np.int64)

        return 1 - facts.gain(change)

    ideal = replayed(set())
    if ideal <= 0:
        return Slowdown(None, None, None, None)
    by_rank = {facts.ranks[p].rank: replayed({p}) / ideal for p in range(facts.size)}
    phases = sorted({phase for _, phase in facts.charges})
    by_phase = {phase: replayed(set(), phase) / ideal for phase in phases}
    total = 1 / ideal
    share = None
    if total > 1.005:  # below half a percent there is nothing to share out
        slowest = sorted(by_rank, key=lambda r: -by_rank[r])[: max(1, round(0.03 * facts.size))]
        others = {p for p in range(facts.size) if facts.ranks[p].rank not in slowest}
        share = max(0.0, min(1.0, (1 - replayed(others)) / (1 - ideal)))
    return Slowdown(total, by_rank, by_phase, share)


def _scales(facts: Facts) -> list[np.ndarray]:
    """For each rank and segment the factor that makes its phase take the ranks' median in that step."""
    scales = [np.ones(len(t.segments)) for t in facts.timelines]
    for phase in sorted({phase for _, phase in facts.charges}):
        masks = [facts.work(p, phase) for p in range(facts.size)]
        times = np.stack([facts.per_step(p, masks[p]) for p in range(facts.size)])
        ideal = np.median(times, axis=0)
        edges = facts.attribution.start
        for p in range(facts.size):
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(times[p] > 0, ideal / times[p], 1.0)
            at = np.flatnonzero(masks[p])
            step = np.clip(
                np.searchsorted(edges, facts.timelines[p].segments["start"][at], side="right") - 1, 0, len(factor) - 1
            )
            scales[p][at] = factor[step]
    return scales
