"""The report: the one answer about a run that every view and every exporter shows (`rankscope.report/1`).

None everywhere means that a value could not be measured; it is written as null and never as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from rankscope.base.finding import Finding
from rankscope.report.document import decode, encode
from rankscope.report.model import ModelFigures

SCHEMA = "rankscope.report/1"
STEP_TIME = "step-time"
"""Stands in `not_examined` where a run has too few steps for any share of a step."""

Verdict: TypeAlias = Literal["healthy", "degraded", "failed", "not-examined"]


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process of one rank ended. `code` is None while it runs or if nobody saw it end."""

    rank: int
    code: int | None
    signal: str | None = None
    """Name of the signal that ended it, for example `SIGKILL`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the command, of a run that was started again or whose hang was ended."""

    number: int
    """1 is the first."""
    why: str | None = None
    """Why it ended: `done`, `failure`, `hang` or `interrupted`; None while it goes on."""
    duration_s: float | None = None
    exit_code: int | None = None
    """Of the command. None where a signal ended it, or while it runs."""
    signal: str | None = None
    """Name of the signal that ended the command."""
    steps: int | None = None
    """Steps that every rank finished."""
    cause: str | None = None
    """Of its first finding that is more than information."""
    title: str | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Which run this is about."""

    id: str
    name: str = ""
    command: tuple[str, ...] = ()
    started: str | None = None
    """UTC, ISO 8601."""
    duration_s: float | None = None
    world_size: int | None = None
    nodes: int | None = None
    backend: str | None = None
    steps: int | None = None
    fingerprint: str | None = None
    exits: tuple[Exit, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """All of them, the last one is what the report is about. Empty where the command was started once and ended by
    itself."""


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """How much of the mean step one phase of one rank made the whole run take."""

    phase: str
    rank: int
    ms: float
    share: float


@dataclass(frozen=True, slots=True)
class Step:
    """The step time and what it consists of; the `ms` of the budget add up to the mean step."""

    median_ms: float | None = None
    p95_ms: float | None = None
    steps: int = 0
    budget: tuple[BudgetLine, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Replays of the run's dependency graph: actual time over the time without the differences of one group."""

    slowdown: float | None = None
    by_rank: dict[int, float] | None = None
    by_stage: dict[str, float] | None = None
    by_operation: dict[str, float] | None = None
    worker_share: float | None = None
    stage_share: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """How one imported device trace divides its window; the four shares add up to 1."""

    file: str
    rank: int | None
    window_us: float
    compute_share: float
    exposed_communication_share: float
    exposed_memory_share: float
    idle_share: float
    hidden_communication_share: float | None = None
    """Of the communication time; None where nothing communicates."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that `diagnose` was given, and whether it could be used."""

    path: str
    kind: str
    used: bool
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class NotExamined:
    """A check that could not be made."""

    detector: str
    needs: str
    why: str


@dataclass(frozen=True, slots=True)
class Clock:
    """How the ranks were put on one clock, and the proven bound of its error."""

    method: str = ""
    max_error_us: float | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """What observing the run cost it."""

    share: float | None = None
    budget: float | None = None
    method: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that did not arrive. None: nobody counted."""

    records: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is known about a run. `findings[0]` is the root cause."""

    run: Run
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    step: Step = field(default_factory=Step)
    whatif: WhatIf = field(default_factory=WhatIf)
    traces: tuple[Trace, ...] = ()
    files: tuple[InputFile, ...] = ()
    not_examined: tuple[NotExamined, ...] = ()
    clock: Clock = field(default_factory=Clock)
    overhead: Overhead = field(default_factory=Overhead)
    lost: Lost = field(default_factory=Lost)
    model: ModelFigures | None = None
    """Not in the contract: what is added stands behind."""
    notes: tuple[str, ...] = ()
    """What the files of other tools hold, a line each."""


def first_problem(report: Report) -> Finding | None:
    """The root cause: the first finding that is more than information."""
    return next((finding for finding in report.findings if finding.severity != "info"), None)


def verdict_of(findings: Iterable[Finding], examined: bool) -> Verdict:
    """The verdict that follows from the findings; `examined` says whether any check could be made at all."""
    verdict: Verdict = "healthy" if examined else "not-examined"
    for finding in findings:
        if finding.severity == "critical" and finding.kind == "failure":
            return "failed"
        if finding.severity != "info":
            verdict = "degraded"
    return verdict


def to_json(report: Report) -> str:
    """The report as indented JSON, in the order of the contract."""
    document: dict[str, object] = msgspec.to_builtins(report, str_keys=True)
    document["findings"] = [_finding_first_id(finding) for finding in report.findings]
    return encode(SCHEMA, document, indent=2) + "\n"


def from_json(text: str | bytes, source: str) -> Report:
    """The report in `text`; UserError that names the field and `source`, the file it comes from."""
    return decode(text, SCHEMA, Report, source)


def _finding_first_id(finding: Finding) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(finding)
    return {name: fields[name] for name in ("id", "cause", "kind")} | fields
