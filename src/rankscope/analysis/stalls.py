"""Phases that stop the run now and then: checkpoints, evaluation, logging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE, worst_ranks
from rankscope.analysis.facts import Facts, Mask
from rankscope.analysis.hot_code import hot_place, samples_in
from rankscope.analysis.stacks import Place, activity
from rankscope.analysis.tables import column
from rankscope.base.finding import Evidence, Finding
from rankscope.records.training import Span

LIKE_THE_LONGEST = 0.2
"""A step counts as one with the stall where it takes this share of the longest one: a short log line does not."""


@dataclass(frozen=True, slots=True)
class Stall:
    """How a phase stops the run."""

    phase: str
    positions: tuple[int, ...]
    """Ranks that do it."""
    masks: dict[int, Mask]
    """Rank position -> its segments of the phase."""
    ns: float
    """Time of the window that one of these ranks spends in it, on average."""
    gain: float
    """Share of the run's time that would be saved without it."""
    times: int
    """Steps in which it happened, on the rank where it happened most."""
    longest_ns: float
    every: float
    """Typical number of steps from one to the next."""
    first: int
    """Number of the first step with it."""
    last: int
    everywhere: bool
    """All ranks do it, for half as long as the busiest one or longer."""


def assess(facts: Facts, phase: str) -> Stall | None:
    """The stall that a phase makes, or None where it costs too little to name, or happened only once."""
    own = np.array([facts.work_ns(p, phase) for p in range(facts.size)])
    if not own.any():
        return None
    positions = worst_ranks(own)
    everywhere = len(positions) == facts.size
    masks = {p: facts.work(p, phase) for p in positions}
    gain = facts.gain_without(masks)
    if gain < (MATERIAL_EVERYWHERE if everywhere else MATERIAL):
        return None
    per_step = np.max([facts.per_step(p, masks[p]) for p in positions], axis=0)
    hits = np.flatnonzero(per_step >= LIKE_THE_LONGEST * per_step.max())
    if len(hits) < 2:
        return None
    return Stall(
        phase=phase,
        positions=positions,
        masks=masks,
        ns=float(own[list(positions)].mean() * len(facts.steps)),
        gain=gain,
        times=len(hits),
        longest_ns=float(per_step.max()),
        every=float(np.median(np.diff(hits))),
        first=int(facts.steps[hits[0]]),
        last=int(facts.steps[hits[-1]]),
        everywhere=everywhere,
    )


def finding(facts: Facts, stall: Stall, cause: str, doing: str, advice: tuple[str, ...]) -> Finding:
    """The finding of a stall, with the function that the training loop calls for it."""
    position = stall.positions[0]
    place, component = _place(facts, stall, position)
    who = wording.ranks(facts, stall.positions)
    every = f" every {stall.every:.0f} steps" if stall.every > 1 else " at every step"
    others = not stall.everywhere
    evidence = [
        Evidence(f"steps with {doing}", float(stall.times), "count", facts.numbers(stall.positions)),
        Evidence(f"longest {doing} in one step", stall.longest_ns / 1e6, "ms", facts.numbers(stall.positions)),
    ]
    if others:
        evidence.append(
            Evidence("of the run is charged to it: the other ranks wait meanwhile", stall.ns / facts.span_ns, "share")
        )
    return Finding(
        cause=cause,
        severity="warning",
        confidence=0.9 if others else 0.8,
        title=f"{doing} on {who}{every} takes {wording.percent(stall.ns / facts.span_ns)}{wording.at(place)}",
        ranks=facts.numbers(stall.positions),
        all_ranks=stall.everywhere,
        phase=stall.phase,
        component=component,
        location=wording.location(place),
        first_step=stall.first,
        last_step=stall.last,
        cost=wording.cost(facts, stall.ns, stall.gain),
        evidence=tuple(evidence),
        next=advice,
    )


def _place(facts: Facts, stall: Stall, position: int) -> tuple[Place | None, str | None]:
    """Where it happens: from the stack samples, else from the call-site of the recorded spans."""
    loop = facts.activities.loop
    indices = samples_in(facts, position, stall.masks[position])
    hot = hot_place(facts, position, indices, where=lambda stack: activity(stack, loop))
    if hot is not None:
        return hot.place, hot.component
    spans = facts.rows(Span, position)
    pid = facts.ranks[position].pid
    for name, site in zip(spans["name"].tolist(), column(spans, Span, "site").tolist(), strict=True):
        if facts.tables.name(pid, name) == stall.phase and site:
            place = facts.place(position, site)
            return place, place.function if place is not None else None
    return None, None
