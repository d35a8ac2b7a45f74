"""Which ranks may still go on: whoever waits for a rank that works may yet be served, and proves nothing by waiting."""

from __future__ import annotations

from rankscope.analysis.facts import Facts
from rankscope.analysis.pairs import unmet
from rankscope.analysis.standing import ended_well, left_waiting
from rankscope.analysis.wavefront import fronts


def may_go_on(facts: Facts) -> frozenset[int]:
    """Positions of the ranks that work (or did when they were told to end), and of those that wait only for such."""
    return facts.once(_may_go_on)


def _may_go_on(facts: Facts) -> frozenset[int]:
    waits_for = {p: _waits_for(facts, p) for p in range(facts.size) if left_waiting(facts, p)}
    free = {p for p in range(facts.size) if p not in waits_for and not ended_well(facts, p)}
    while served := {p for p, others in waits_for.items() if p not in free and others <= free}:
        free |= served
    return frozenset(free)


def _waits_for(facts: Facts, position: int) -> set[int]:
    """Who has to come for a rank that waits; itself where ranks called what will never fit together, nobody where its
    operation is on its way."""
    link = unmet(facts).get(position)
    if link is not None:
        return {link.peer}
    mine = [front for front in fronts(facts) if position in front.entered]
    if not mine:
        return set()
    last = max(mine, key=lambda front: front.entered[position].time_ns)
    return {position} if len(last.camps) > 1 else set(last.absent)
