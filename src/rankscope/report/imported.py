"""The report of files of other tools, alone or beside a run of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from rankscope.analysis.imported.examination import Kept, Together, examine
from rankscope.report.report import (
    Clock,
    InputFile,
    NotExamined,
    Report,
    Run,
    Step,
    Trace,
    WhatIf,
    verdict_of,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """One input, as it was read."""

    file: InputFile
    kept: tuple[Kept, ...] = ()


def imported_report(
    name: str, inputs: Sequence[Imported], world_size: int | None, observed: Report | None = None
) -> Report:
    """What the files say; with `observed` the report of a run that they belong to.

    `name` stands for the run where there is none. `world_size`: as the user gave it.
    """
    kept = [one for part in inputs for one in part.kept]
    known = world_size or (observed.run.world_size if observed is not None else None)
    together = examine(kept, known, observed.findings if observed is not None else ())
    unused = together.unused
    files = tuple(_said(part.file, unused) for part in inputs)
    missing = _missing(together)
    if observed is None:
        examined = any(answer.examined for answer in together.answers)
        base = Report(
            run=Run(id=name, world_size=known or together.world_size, steps=_steps(together)),
            verdict=verdict_of(together.findings, examined=examined),
            step=_step(together),
            clock=_clock(together),
        )
    else:
        failed = observed.verdict == "failed"
        base = replace(
            observed,
            verdict="failed" if failed else verdict_of(together.findings, examined=observed.verdict != "not-examined"),
        )
    return replace(
        base,
        findings=together.findings,
        whatif=_whatif(together) if together.replayed is not None else base.whatif,
        traces=tuple(
            Trace(
                one.file, one.rank, one.window_us, one.compute, one.exposed_communication, one.exposed_memory, one.idle,
                one.hidden_communication,
            )
            for one in sorted(together.shares, key=lambda s: (s.rank is None, s.rank or 0, s.file))
        ),
        files=files,
        not_examined=(*base.not_examined, *missing),
        notes=tuple(note for answer in together.answers for note in answer.notes),
    )  # fmt: skip


def _missing(together: Together) -> tuple[NotExamined, ...]:
    """What could not be examined, once for all files that lack the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for answer in together.answers:
        for detector, needs, why in answer.not_examined:
            found.setdefault((detector, needs), []).append(why)
    return tuple(
        NotExamined(detector, needs, why[0] + (f" (and {len(why) - 1} more such files)" if len(why) > 1 else ""))
        for (detector, needs), why in found.items()
    )


def _said(file: InputFile, unused: dict[str, str]) -> InputFile:
    """The file; left out after all where an examiner says so."""
    why = unused.get(file.path)
    return replace(file, used=False, why_not=why) if file.used and why else file


def _steps(together: Together) -> int | None:
    return max((answer.steps for answer in together.answers if answer.steps is not None), default=None)


def _step(together: Together) -> Step:
    times = next((answer.step_ms for answer in together.answers if answer.step_ms), ())
    if not times:
        return Step()
    return Step(median_ms=median(times), p95_ms=float(np.percentile(times, 95)), steps=_steps(together) or len(times))


def _clock(together: Together) -> Clock:
    known = next((answer for answer in together.answers if answer.clock_method), None)
    return Clock(known.clock_method, known.clock_error_us) if known is not None else Clock()


def _whatif(together: Together) -> WhatIf:
    found = together.replayed
    assert found is not None
    return WhatIf(
        found.slowdown, found.by_rank, found.by_stage, found.by_operation, found.worker_share, found.stage_share
    )
