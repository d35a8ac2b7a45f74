"""What a test compares: the part of a finding that must be right, in one value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rankscope.analysis.detector import Detector
from rankscope.base.finding import Finding
from rankscope.testing.runs import MadeUpRun


class Named(NamedTuple):
    """What a finding names. `share` may be compared with `pytest.approx`."""

    cause: str
    severity: str
    ranks: tuple[int, ...]
    all_ranks: bool
    phase: str | None
    component: str | None
    place: str | None
    """`file:line:function`"""
    share: float | None
    """Recoverable share."""


def named(finding: Finding) -> Named:
    """The part of a finding that a test compares."""
    at = finding.location
    return Named(
        finding.cause,
        finding.severity,
        finding.ranks,
        finding.all_ranks,
        finding.phase,
        finding.component,
        f"{at.file}:{at.line}:{at.function}" if at is not None else None,
        finding.cost.recoverable_share,
    )


def found_by(detector: type[Detector], run: MadeUpRun) -> list[Named]:
    """What one detector finds in a made-up run; raises CannotExamine as it does."""
    return [named(finding) for finding in detector().examine(run.facts)]


def evidence_of(findings: Iterable[Finding]) -> dict[str, float | None]:
    """Text -> value of all evidence."""
    return {e.text: e.value for finding in findings for e in finding.evidence}
