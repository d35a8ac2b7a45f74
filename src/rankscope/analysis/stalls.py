"""Phases that stop the run now and then: checkpoints, evaluation, logging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE
from rankscope.analysis.facts import Facts, Mask
from rankscope.analysis.hot_code import hot_place, samples_in
from rankscope.analysis.stacks import Place, activity, parse_place
from rankscope.analysis.tables import column
from rankscope.base.finding import Evidence, Finding
from rankscope.records.training import Span


@dataclass(frozen=True, slots=True)
class Stall:
    phase: str
    positions: tuple[int, ...]
    masks: dict[int, Mask]
    ns: float
    gain: float
    times: int
    """Steps in which it happened, on the rank where it happened most."""
    longest_ns: float
    every: float | None
    """Typical number of steps from one to the next."""
    first: int
    last: int
    everywhere: bool
    """All ranks do it for about the same time."""


def assess(facts: Facts, phase: str) -> Stall | None:
    """The stall that a phase makes, or None where it costs too little to name, or happened only once."""
    own = np.array([facts.work_ns(p, phase) for p in range(facts.size)])
    if not own.any():
        return None
    positions = tuple(int(p) for p in np.flatnonzero(own >= 0.5 * own.max()))
    everywhere = len(positions) == facts.size
    masks = {p: facts.work(p, phase) for p in positions}
    gain = facts.gain_without(masks)
    if gain < (MATERIAL_EVERYWHERE if everywhere else MATERIAL):
        return None
    per_step = np.max([facts.per_step(p, masks[p]) for p in positions], axis=0)
    hits = np.flatnonzero(per_step >= 0.2 * per_step.max())
    if len(hits) < 2:
        return None
    return Stall(
        phase,
        positions,
        masks,
        float(own[list(positions)].mean() * len(facts.steps)),
        gain,
        len(hits),
        float(per_step.max()),
        float(np.median(np.diff(hits))),
        int(facts.steps[hits[0]]),
        int(facts.steps[hits[-1]]),
        everywhere,
    )


def finding(facts: Facts, stall: Stall, cause: str, doing: str, advice: tuple[str, ...]) -> Finding:
    """The finding of a stall, with the function that the training loop calls for it."""
    position = stall.positions[0]
    place, component = _place(facts, stall, position)
    who = wording.ranks(facts, stall.positions)
    every = f" every {stall.every:.0f} steps" if stall.every and stall.every > 1 else " at every step"
    others = facts.size > len(stall.positions)
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
        all_ranks=len(stall.positions) == facts.size,
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
            place = parse_place(facts.tables.name(pid, site))
            return place, place.function
    return None, None
