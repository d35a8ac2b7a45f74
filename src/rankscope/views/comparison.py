"""Two runs side by side for a script: the numbers of `render_compare` (`rankscope.compare/1`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from rankscope.report.document import encode
from rankscope.report.report import Report, Verdict, first_problem
from rankscope.views.tables import noise_ms, phase_ms

SCHEMA = "rankscope.compare/1"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    id: str
    name: str
    verdict: Verdict
    cause: str | None
    world_size: int | None
    steps: int | None
    median_ms: float | None
    p95_ms: float | None
    phases_ms: dict[str, float]
    """What the mean step spends in each phase, over all ranks."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`b` against `a`."""

    a: Side
    b: Side
    same_setup: bool | None
    """Whether the fingerprints agree; None: not known."""
    noise_ms: float | None
    """Differences of the median up to this mean nothing; None: too few steps to tell."""
    change: Literal["slower", "faster", "inside-noise"] | None
    """Of the median step; None: not known."""


def compare(a: Report, b: Report) -> Comparison:
    """The comparison of two reports."""
    fingerprints = (a.run.fingerprint, b.run.fingerprint)
    noise = noise_ms(a.step, b.step)
    change: Literal["slower", "faster", "inside-noise"] | None = None
    if noise is not None and a.step.median_ms is not None and b.step.median_ms is not None:
        difference = b.step.median_ms - a.step.median_ms
        change = "inside-noise" if abs(difference) <= noise else "slower" if difference > 0 else "faster"
    same = fingerprints[0] == fingerprints[1] if all(fingerprints) else None
    return Comparison(_side(a), _side(b), same, noise, change)


def comparison_to_json(a: Report, b: Report) -> str:
    """The comparison as indented JSON."""
    return encode(SCHEMA, msgspec.to_builtins(compare(a, b)), indent=2) + "\n"


def _side(report: Report) -> Side:
    root = first_problem(report)
    return Side(
        report.run.id,
        report.run.name,
        report.verdict,
        root.cause if root else None,
        report.run.world_size,
        report.run.steps,
        report.step.median_ms,
        report.step.p95_ms,
        phase_ms(report.step),
    )
