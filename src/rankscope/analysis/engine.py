"""Run every detector over one run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankscope.analysis import detectors
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import FEWEST_STEPS, Facts
from rankscope.analysis.roots import arrange
from rankscope.base.finding import Finding
from rankscope.base.guard import swallow
from rankscope.base.plugins import load_all, load_third_party

UNNOTICED_MS = 500.0
"""What a fault took from all steps that were analysed. A run of so few short steps is at the mercy of the scheduler,
whose time slices are 3 to 10 ms, and no one waits for half a second."""


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
    others = load_third_party(detectors, Detector)
    findings: list[Finding] = []
    missing: list[Unexamined] = []
    for cls in (*load_all(detectors, Detector), *others.classes):
        found = _ask(cls, facts)
        if isinstance(found, str):
            missing.append(Unexamined(cls.name, _needs(cls), found))
        else:
            findings += found if cls.any_length else (_weighed(finding, facts) for finding in found)
    missing += [Unexamined(broken.name, "", broken.why) for broken in others.broken]
    return Examination(arrange(findings), tuple(missing))


def _ask(cls: type[Detector], facts: Facts) -> list[Finding] | str:
    """What a detector finds, or why it could not examine the run."""
    try:
        return _why_not(cls, facts) or list(cls().examine(facts))
    except CannotExamine as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - one wrong detector does not take the others' findings away
        swallow(f"running detector {cls.name}", error)
        return f"the detector failed: {type(error).__name__}: {error}"


def _weighed(finding: Finding, facts: Facts) -> Finding:
    """The finding; where all it took from the whole run is less than anyone would notice, as a remark."""
    ms = finding.cost.ms_per_step
    if finding.kind != "performance" or ms is None or finding.severity != "warning":
        return finding
    return replace(finding, severity="info") if ms * len(facts.steps) < UNNOTICED_MS else finding


def _needs(cls: type[Detector]) -> str:
    return ", ".join(str(getattr(kind, "kind", kind)) for kind in cls.needs)


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
