"""Findings as the page shows them: in words, with the quoted lines of code and what follows from each."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from rankscope.base.finding import Finding, Location
from rankscope.report.details import Details
from rankscope.report.report import Report
from rankscope.views.quantities import value_text
from rankscope.views.sentences import cost_text, gain_text, place_text, ranks_text, steps_text, sure_text

CONTEXT = 4
"""Lines quoted before and after the guilty one."""


@dataclass(frozen=True, slots=True)
class QuotedLine:
    """A line of source code; `guilty` is the one that the finding names."""

    number: int
    text: str
    guilty: bool


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One measured value in words."""

    text: str
    ranks: str
    value: str


@dataclass(frozen=True, slots=True)
class Card:
    """One finding in words."""

    finding: Finding
    place: str
    who: str
    when: str
    cost: str
    gain: str
    sure: str
    evidence: tuple[EvidenceRow, ...]
    lines: tuple[QuotedLine, ...]
    followers: tuple[Card, ...]


def cards_of(report: Report, details: Details) -> tuple[Card, ...]:
    """Every finding once: under the one that explains it, else at the top in the report's order."""
    shown: set[int] = set()

    def card(finding: Finding) -> Card:
        shown.add(id(finding))
        followers = []
        for other in report.findings:
            if other.id in finding.explains and id(other) not in shown:
                followers.append(card(other))
        return _card(finding, report, details, tuple(followers))

    # Problems first, so that a note never takes what a root cause explains.
    order = sorted(report.findings, key=lambda finding: finding.severity == "info")
    return tuple(card(finding) for finding in order if id(finding) not in shown)


def _card(finding: Finding, report: Report, details: Details, followers: tuple[Card, ...]) -> Card:
    who = ranks_text(finding.ranks, all_ranks=finding.all_ranks)
    if finding.ranks and not finding.all_ranks and report.run.world_size:
        who += f" of {report.run.world_size}"
    return Card(
        finding,
        _place(finding),
        who,
        steps_text(finding.first_step, finding.last_step),
        cost_text(finding.cost),
        gain_text(finding.cost.recoverable_share),
        sure_text(finding.confidence),
        tuple(
            EvidenceRow(one.text, ranks_text(one.ranks), value_text(one.value, one.unit)) for one in finding.evidence
        ),
        quoted_lines(finding.location, details),
        followers,
    )


def _place(finding: Finding) -> str:
    place = finding.location
    component = finding.component or ""
    if place is None:
        return component
    if component.endswith(place.function):
        return place_text(Location(place.file, place.line, component))
    return f"{place_text(place)} ({component})" if component else place_text(place)


def quoted_lines(location: Location | None, details: Details) -> tuple[QuotedLine, ...]:
    """The lines around a place, as far as they were saved."""
    if location is None:
        return ()
    for snippet in details.sources.get(location.file, ()):
        at = location.line - snippet.first_line
        if 0 <= at < len(snippet.lines):
            first = max(0, at - CONTEXT)
            shown = [line.rstrip().expandtabs(4) for line in snippet.lines[first : at + CONTEXT + 1]]
            lines = textwrap.dedent("\n".join(shown)).split("\n")
            start = snippet.first_line + first
            return tuple(QuotedLine(number, text, number == location.line) for number, text in enumerate(lines, start))
    return ()
