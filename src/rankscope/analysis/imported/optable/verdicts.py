"""What the operations of a job show: an unbalanced pipeline, a slow rank, work that is dealt unevenly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.detector import MATERIAL
from rankscope.analysis.imported.optable import findings
from rankscope.analysis.imported.optable.effects import Scale, even_stages, like_peers, without
from rankscope.analysis.imported.optable.shapes import Job
from rankscope.analysis.imported.optable.slow_ranks import slow_ranks
from rankscope.analysis.imported.optable.variation import variation
from rankscope.analysis.imported.optable.whatif import replayed
from rankscope.base.finding import Finding

DOMINATES = 0.5
"""Share of the step that communication takes when nobody is late: with more, the network is what to look at first."""


@dataclass(frozen=True, slots=True)
class _Effect:
    """A part of the slowdown, and how to take it out."""

    scale: Scale
    finding: Callable[[float], Finding]
    """From the ns of a step that it costs."""


def verdicts(job: Job) -> list[Finding]:
    """The dearest first. Each one's cost is what a step loses by it after the dearer ones are mended."""
    effects: list[_Effect] = []
    base: Scale = _unscaled
    slow = slow_ranks(job.means, job.where)
    alike = [s for s in slow if s.alike]
    chosen = alike or slow[:1]
    if chosen:
        base = like_peers(
            job.means, {(s.stage, s.lane): s.ratio for s in chosen}, {(s.stage, s.lane): s.since for s in chosen}
        )
        effects.append(
            _Effect(base, lambda ns: findings.slow(job, alike, ns) if alike else findings.odd(job, chosen[0], ns))
        )
    if job.where.num_stages > 1:
        effects.append(_Effect(even_stages(job.means), lambda ns: findings.imbalance(job, ns)))
    if len(job.where.ranks) > 1:
        varied = variation(job.measured, job.means, base)
        if varied is not None and varied.told:
            effects.append(_Effect(varied.scale, lambda ns: findings.uneven(job, varied, ns)))
    found = [effect.finding(ns) for effect, ns in _costs(job, effects) if ns >= MATERIAL * job.whatif.actual_ns]
    bound = _communication_bound(job)
    return found + ([bound] if bound is not None else [])


def _unscaled(*_: object) -> float:
    return 1.0


def _costs(job: Job, effects: list[_Effect]) -> list[tuple[_Effect, float]]:
    """(effect, ns of a step), taken out one after the other, each time the one that gains most."""
    found: list[tuple[_Effect, float]] = []
    left = list(effects)
    scale: Scale = _unscaled
    now = job.whatif.actual_ns
    while left:
        times = [without(job.measured, _product(scale, effect.scale)) for effect in left]
        best = int(np.argmin(times))
        found.append((left[best], now - times[best]))
        scale = _product(scale, left.pop(best).scale)
        now = min(now, times[best])
    return found


def _product(a: Scale, b: Scale) -> Scale:
    return lambda m, i: a(m, i) * b(m, i)


def _communication_bound(job: Job) -> Finding | None:
    """Transfers alone, when everybody is on time, take most of the step."""
    if len(job.where.ranks) < 2:
        return None
    hidden = replayed(job.measured, lambda m, i: np.float64(0) if m.block.kind_of(i).communicates else m.ideal[i])
    share = 1 - hidden / job.whatif.ideal_ns
    if share < DOMINATES:
        return None
    times: dict[str, float] = {}
    for m in job.measured:
        for i in range(len(m.block.ops)):
            kind = m.block.kind_of(i)
            if kind.communicates:
                times[kind.group] = times.get(kind.group, 0.0) + float(m.ideal[i])
    return findings.communication(job, max(times, key=lambda group: times[group]), share)
