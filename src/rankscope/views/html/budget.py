"""The exact step budget as bars: one row a rank, the whole step as wide as the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankscope.report.details import Details
from rankscope.report.report import Report

MAX_RANKS = 12
"""Rows of their own; the rest of the ranks share one."""

KNOWN = (
    "data",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "evaluation",
    "logging",
    "other",
)
"""Phases in the order of a step; each has a colour of its own in style.css."""
EXTRA_COLORS = 4
"""Colours that the user's own phases take in turn."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase and the name of its colour."""

    name: str
    color: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a rank's bar; `start` and `width` in percent of the mean step."""

    phase: Phase
    ms: float
    share: float
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """What one rank (or all that have no row of their own) made the step take."""

    label: str
    ms: float
    share: float
    segments: tuple[Segment, ...]


def phases_of(report: Report, details: Details) -> tuple[Phase, ...]:
    """Every phase that the page shows, in the order of a step."""
    names = {line.phase for line in report.step.budget}
    names |= {span.phase for step in details.steps for span in step.spans}
    own = sorted(names - set(KNOWN))
    known = [Phase(name, f"phase-{name}") for name in KNOWN if name in names]
    return (*known, *(Phase(name, f"phase-extra-{at % EXTRA_COLORS}") for at, name in enumerate(own)))


def budget_rows(report: Report) -> tuple[BudgetRow, ...]:
    """Ranks by what they are charged with, each row starting where the one above ends: they add up to the step."""
    order = {phase.name: (at, phase) for at, phase in enumerate(phases_of(report, Details()))}
    by_rank: dict[int, dict[str, float]] = {}
    for line in report.step.budget:
        phases = by_rank.setdefault(line.rank, {})
        phases[line.phase] = phases.get(line.phase, 0.0) + line.ms
    total = sum(line.ms for line in report.step.budget)
    if total <= 0:
        return ()
    ranks = sorted(by_rank, key=lambda rank: (-sum(by_rank[rank].values()), rank))
    groups = [(f"rank {rank}", by_rank[rank]) for rank in ranks[:MAX_RANKS]]
    if len(ranks) > MAX_RANKS:
        groups.append((f"{len(ranks) - MAX_RANKS} more ranks", _merged(by_rank[rank] for rank in ranks[MAX_RANKS:])))
    rows = []
    start = 0.0
    for label, phases in groups:
        segments = []
        for name in sorted(phases, key=lambda name: order[name][0]):
            ms = phases[name]
            width = 100 * ms / total
            segments.append(Segment(order[name][1], ms, ms / total, start, width))
            start += width
        ms = sum(phases.values())
        rows.append(BudgetRow(label, ms, ms / total, tuple(segments)))
    return tuple(rows)


def _merged(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    merged: dict[str, float] = {}
    for part in parts:
        for name, ms in part.items():
            merged[name] = merged.get(name, 0.0) + ms
    return merged
