"""The attempts of a run whose command was started again: which records are whose, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankscope.analysis.ends import signal_name
from rankscope.analysis.tables import WHOLE, Part
from rankscope.base.manifest import Attempt as Start
from rankscope.base.manifest import Manifest
from rankscope.report.report import Attempt, Report, first_problem


def last_part(manifest: Manifest) -> Part:
    """Which records belong to the last attempt, which a run's report is about."""
    return part_of(manifest, len(manifest.attempts) - 1) if manifest.attempts else WHOLE


def part_of(manifest: Manifest, index: int) -> Part:
    """Which records belong to one attempt."""
    attempts = manifest.attempts
    return Part(
        since_ns=attempts[index].started_ns if index else 0,
        until_ns=attempts[index + 1].started_ns if index + 1 < len(attempts) else 0,
        stopped_ns=attempts[index].stopped_ns,
    )


def up_to(manifest: Manifest, index: int) -> Manifest:
    """What the manifest was when one attempt had ended."""
    attempt = manifest.attempts[index]
    return replace(manifest, attempts=manifest.attempts[: index + 1], exit_code=attempt.exit_code)


def with_attempts(report: Report, manifest: Manifest, earlier: Mapping[int, Report]) -> Report:
    """The report of the last attempt with what became of all of them; `earlier`: by number of the attempt."""
    known = {**earlier, len(manifest.attempts): report}
    attempts = tuple(_attempt(start, known.get(start.number)) for start in manifest.attempts)
    return replace(report, run=replace(report.run, attempts=attempts))


def _attempt(start: Start, report: Report | None) -> Attempt:
    code = start.exit_code
    problem = first_problem(report) if report is not None else None
    return Attempt(
        number=start.number,
        why=start.why or None,
        duration_s=(start.ended_ns - start.started_ns) / 1e9 if start.ended_ns is not None else None,
        exit_code=code if code is None or code >= 0 else None,
        signal=signal_name(-code) if code is not None and code < 0 else None,
        steps=report.run.steps if report is not None else None,
        cause=problem.cause if problem is not None else None,
        title=problem.title if problem is not None else None,
        ranks=problem.ranks if problem is not None else (),
    )
