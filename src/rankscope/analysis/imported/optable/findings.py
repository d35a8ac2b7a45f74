"""How the parts of a slowdown read as findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.detector import MATERIAL, SHARE_OF_WORST
from rankscope.analysis.imported.optable.kinds import BACKWARD, FORWARD
from rankscope.analysis.imported.optable.shapes import Job
from rankscope.analysis.imported.optable.slow_ranks import SlowRank
from rankscope.analysis.imported.optable.variation import Variation
from rankscope.analysis.wording import ms, numbered, percent
from rankscope.base.finding import Cost, Evidence, Finding

ONE_RANK: Final = 0.8
"""Share of all excess that one rank has, from which on it is that rank and not the work."""
MOST_ROWS: Final = 16
"""Of one kind of evidence: a job of hundreds of stages does not need a line for each."""
BUCKETS: Final = (
    "bucket samples by length, or fill micro-batches by work (tokens, squared lengths) instead of by samples",
    "deal the samples of a step to the ranks so that each gets about the same work",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What differs from finding to finding."""

    cause: str
    title: str
    evidence: list[Evidence]
    next: tuple[str, ...]
    ranks: tuple[int, ...]
    confidence: float
    component: str
    first_step: int | None = None
    phase: str | None = None


def _finding(job: Job, ns: float, said: _Said) -> Finding:
    share = min(1.0, ns / job.whatif.actual_ns)
    steps = job.means.steps
    s = Evidence("measured time of a step over that without stragglers (replayed)", job.whatif.slowdown, "x")
    return Finding(
        cause=said.cause,
        severity="warning",
        confidence=said.confidence,
        title=said.title,
        ranks=said.ranks,
        all_ranks=len(said.ranks) == len(job.where.ranks) > 1,
        phase=said.phase,
        component=said.component,
        location=None,
        first_step=int(steps[0]) if said.first_step is None else said.first_step,
        last_step=int(steps[-1]),
        cost=Cost(ns / 1e6, share, share),
        evidence=(*said.evidence, s),
        next=said.next,
    )


def _loss(job: Job, ns: float) -> str:
    return f"{percent(ns / job.whatif.actual_ns)} of each step ({ms(ns)})"


def imbalance(job: Job, ns: float) -> Finding:
    """One stage, or several, take longer than the others."""
    totals = job.means.stage_total()
    over = totals - totals.mean()
    long = [s for s in np.argsort(-totals).tolist() if over[s] >= SHARE_OF_WORST * over.max()]
    names = [job.where.stage_names[s] for s in long]
    first, ranks = long[0], tuple(sorted(rank for s in long for rank in job.where.of_stage(s)))
    others = np.delete(totals, long) if len(long) < len(totals) else totals
    ratio = float(totals[first] / np.median(others)) if np.median(others) > 0 else 1.0
    one = len(names) == 1
    what = f"pipeline stage {names[0]}" if one else f"pipeline stages {', '.join(map(str, sorted(names)))}"
    evidence = [
        Evidence(f"compute of stage {job.where.stage_names[s]} in a step", totals[s] / 1e6, "ms", job.where.of_stage(s))
        for s in sorted(range(len(totals)), key=lambda s: (s not in long, s))[:MOST_ROWS]
    ]
    for a, number in enumerate(job.means.kinds):
        profile = job.means.stage[a]
        rest = np.delete(profile, long)
        rest = rest[np.isfinite(rest)]
        if len(rest) and np.isfinite(profile[first]) and np.median(rest) > 0:
            text = f"{job.rows.names[number]} on stage {names[0]} over that on the others"
            evidence.append(Evidence(text, float(profile[first] / np.median(rest)), "x"))
    text = f"slowdown with only stage {names[0]} as measured"
    evidence.append(Evidence(text, job.whatif.by_stage[names[0]], "x", job.where.of_stage(first)))
    if job.whatif.stage_share is not None:
        text = "share of the slowdown that goes when the last stage is like the mean (M_S)"
        evidence.append(Evidence(text, job.whatif.stage_share, "share"))
    if first == len(totals) - 1:
        hint = "the loss and the output layer count as layers of the last stage"
    elif first == 0:
        hint = "the embedding counts as layers of the first stage"
    else:
        hint = "count layers by their time, not by number"
    steps = [f"move layers from stage {names[0]} to the others: {hint}"]
    alone = job.where.num_lanes == 1
    if alone:
        steps.append("with one replica a slow device looks the same: swap that of the stage and see whether it moves")
    return _finding(
        job,
        ns,
        _Said(
            cause="pipeline-imbalance",
            title=f"{what} ({numbered(ranks)}) {'computes' if one else 'compute'} {ratio:.2f} times as long as the "
            f"others, which wait: {_loss(job, ns)}",
            evidence=evidence,
            next=tuple(steps),
            ranks=ranks,
            confidence=0.7 if alone else 0.9,
            component=what,
        ),
    )


def _ratios(job: Job, slow: SlowRank) -> list[Evidence]:
    return [
        Evidence(
            f"{job.rows.names[number]} of rank {slow.rank} over its peers of the same stage",
            float(slow.ratio[a]),
            "x",
            (slow.rank,),
        )
        for a, number in enumerate(job.means.kinds)
        if np.isfinite(slow.ratio[a])
    ] + [Evidence("steps in which it is the slower one", slow.steady, "share", (slow.rank,))]


def slow(job: Job, found: list[SlowRank], ns: float) -> Finding:
    """Ranks that are slower than their peers in everything."""
    ranks = tuple(sorted(s.rank for s in found))
    worst = found[0]
    since = "" if worst.always else f" since step {worst.since}"
    evidence = [line for s in found[:4] for line in _ratios(job, s)]
    if job.whatif.worker_share is not None:
        text = "share of the slowdown that goes when the slowest 3 % of ranks are like the mean (M_W)"
        evidence.append(Evidence(text, job.whatif.worker_share, "share"))
    return _finding(
        job,
        ns,
        _Said(
            cause="slow-device",
            title=f"{numbered(ranks)} {'computes' if len(ranks) == 1 else 'compute'} {worst.factor:.2f} times slower "
            f"than peers in all operations{since}, the others wait: {_loss(job, ns)}",
            evidence=evidence,
            next=(
                "check clocks, temperature, power limit and error counters of that device, and what else runs on it",
                "swap the device with another rank's: does the slowness move with it?",
            ),
            ranks=ranks,
            confidence=0.85 if len(job.means.kinds) > 1 else 0.6,
            component=f"device of {numbered(ranks)}",
            first_step=worst.since,
        ),
    )


def odd(job: Job, found: SlowRank, ns: float) -> Finding:
    """One rank that is slower in some operations and not in others: what it does, not what it runs on."""
    longer = [number for a, number in enumerate(job.means.kinds) if found.ratio[a] > 1 + MATERIAL]
    kinds = job.measured[0].block.kinds
    passes = {kinds[number].compute for number in longer}
    names = " and ".join(job.rows.names[number] for number in longer) or "compute"
    work = passes >= {FORWARD, BACKWARD}
    factor = found.factor if work else float(np.nanmax(found.ratio))
    return _finding(
        job,
        ns,
        _Said(
            cause="uneven-work" if work else "slow-code",
            title=f"rank {found.rank} takes {factor:.2f} times as long as its peers in {names}, not in the rest, "
            f"the others wait: {_loss(job, ns)}",
            evidence=_ratios(job, found),
            next=(
                "compare the batches of that rank with those of its peers: their size and the length of their samples"
                if work
                else f"look for what only that rank does in {names}: hooks, logging, another branch of the model",
            ),
            ranks=(found.rank,),
            confidence=0.6 if work else 0.45,
            component=names,
            first_step=found.since,
            phase=next(iter(passes)) or None if len(passes) == 1 else None,
        ),
    )


def uneven(job: Job, varied: Variation, ns: float) -> Finding:
    """Compute that differs from step to step by more than chance."""
    excess = np.where(np.isfinite(varied.excess), varied.excess, 0)
    # What one rank and step is longer by chance alone is no excess.
    each = np.clip(excess - 2 * float(np.median(np.abs(excess))), 0, None).sum(axis=2)
    stage, lane = (int(x) for x in np.unravel_index(int(np.argmax(each)), each.shape))
    one = job.where.at(lane, stage)
    fixed = not varied.by_micro_batch and one is not None and each[stage, lane] >= ONE_RANK * each.sum() > 0
    by_rank = excess.reshape(-1, excess.shape[2])
    slowest = np.bincount(np.argmax(by_rank, axis=0), minlength=len(by_rank))
    evidence = [Evidence("longest over shortest compute of the same kind within a step (median)", varied.spread, "x")]
    if varied.correlation is not None:
        text = "correlation of forward and backward time of the same micro-batch"
        evidence.append(Evidence(text, varied.correlation, ""))
    if not varied.by_micro_batch:
        text = "variance that one rank's operations share within a step, over that of chance"
        evidence.append(Evidence(text, varied.common, "x"))
    text = "steps in which the same rank is the slowest"
    evidence.append(Evidence(text, float(slowest.max() / slowest.sum()), "share"))
    if fixed and one is not None:
        return _finding(
            job,
            ns,
            _Said(
                cause="slow-device",
                title=f"rank {one} is slower than its peers in some steps, in all that it computes: {_loss(job, ns)}",
                evidence=evidence,
                next=("look at clocks, temperature and power of that device over time, and what else runs on it",),
                ranks=(one,),
                confidence=0.5,
                component=f"device of rank {one}",
            ),
        )
    how = "micro-batches differ in work" if varied.by_micro_batch else "the slow rank moves from step to step"
    sure = varied.by_micro_batch and varied.correlation is not None
    return _finding(
        job,
        ns,
        _Said(
            cause="uneven-work",
            title=f"uneven work: {how}, the others wait for the longest: {_loss(job, ns)}",
            evidence=evidence,
            next=BUCKETS,
            ranks=tuple(int(rank) for rank in job.where.ranks),
            confidence=min(0.95, 0.5 + (varied.correlation or 0) / 2) if sure else 0.65,
            component="batches: how samples are dealt to the ranks",
        ),
    )


def communication(job: Job, longest: str, share: float) -> Finding:
    """Transfers alone take most of a step."""
    return _finding(
        job,
        share * job.whatif.ideal_ns,
        _Said(
            cause="communication-bound",
            title=f"communication that nothing hides takes {percent(share)} of a step on all ranks, "
            f"most of it {longest}",
            evidence=[Evidence("share of a step without stragglers that is exposed transfer", share, "share")],
            next=("overlap transfers of gradients and parameters with compute", "accumulate more micro-batches a step"),
            ranks=tuple(int(rank) for rank in job.where.ranks),
            confidence=0.7,
            component=longest,
            phase="communication",
        ),
    )
