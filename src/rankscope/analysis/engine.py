"""Run every detector over one run."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis import detectors
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import FEWEST_STEPS, Facts
from rankscope.analysis.roots import arrange
from rankscope.base.finding import Finding
from rankscope.base.guard import guard
from rankscope.base.plugins import load_all


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A detector that could not examine the run, and why."""

    detector: str
    needs: str
    why: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What all detectors said of one run."""

    findings: tuple[Finding, ...]
    """Root cause first; what only follows from a finding stands after it."""
    not_examined: tuple[Unexamined, ...]


def examine(facts: Facts) -> Examination:
    """All findings of all detectors, arranged, and what could not be examined with the reason."""
    findings: list[Finding] = []
    missing: list[Unexamined] = []
    for cls in load_all(detectors, Detector, entry_points=True):
        why = _why_not(cls, facts)
        if why is None:
            with guard(f"running detector {cls.name}"):
                try:
                    findings += list(cls().examine(facts))
                    continue
                except CannotExamine as error:
                    why = str(error)
        needs = ", ".join(kind.kind for kind in cls.needs)
        missing.append(Unexamined(cls.name, needs, why or "the detector failed; see rankscope's log"))
    return Examination(arrange(findings), tuple(missing))


def _why_not(cls: type[Detector], facts: Facts) -> str | None:
    """Why a detector need not be asked at all; None where it can be."""
    if not facts.ranks:
        return "no training process was observed"
    if facts.inference and not cls.inference:
        return "no training step was seen, and this cause is one of training"
    if not cls.any_length and not facts.enough:
        return f"fewer than {FEWEST_STEPS} steps after the warm-up"
    for kind in cls.needs:
        if not len(facts.tables.of(kind)):
            return f"no {kind.kind} records"
    return None
