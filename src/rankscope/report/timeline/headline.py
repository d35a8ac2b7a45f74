"""The tracks at the top of a timeline: what was found, and how far the clock can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankscope.analysis.wording import ms, numbered, percent
from rankscope.base.finding import Evidence, Finding
from rankscope.report.report import Clock
from rankscope.report.timeline.batch import Batch, Draft
from rankscope.report.timeline.nesting import drawn
from rankscope.report.timeline.parts import Part, Track
from rankscope.report.timeline.window import Steps, Window

HEAD = "Rankscope"
"""Viewers sort what stands by itself by name, capitals first: it stays above the ranks."""
_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def headline(
    findings: Sequence[Finding], clock: Clock, *, steps: Steps, window: Window, origin_ns: int, ids: Iterator[int]
) -> Iterator[Part]:
    """Findings that touch the window as slices from their first to their last step, each with its evidence; and the
    clock, as a slice over the whole window."""
    head = Track(next(ids), HEAD)
    yield head
    batch = Batch()
    for finding in findings:
        where = _where(finding, steps, window)
        if where is not None:
            batch.add(_finding(batch, finding, *where))
    yield from drawn(Track(next(ids), "findings", head.id, 0), batch.slices(head.id, origin_ns), ids)
    name = clock_text(clock)
    batch = Batch()
    batch.add(
        Draft(
            np.array([window.begin_ns]), np.array([window.end_ns]), batch.same(name, 1), batch.same("clock", 1),
            {
                "max_error_us": np.array([np.nan if clock.max_error_us is None else clock.max_error_us]),
                "origin_ns": np.array([origin_ns]),
            },
            {"method": batch.same(clock.method or "not known", 1)},
        )
    )  # fmt: skip
    yield from drawn(Track(next(ids), name, head.id, 1), batch.slices(head.id, origin_ns), ids)


def clock_text(clock: Clock) -> str:
    """`clock: ±12 µs (one monotonic clock of the node)`."""
    method = clock.method or "how the ranks' clocks compare is not known"
    if clock.max_error_us is None:
        return f"clock: offsets not known ({method})"
    return f"clock: ±{clock.max_error_us:.3g} µs ({method})"


def _where(finding: Finding, steps: Steps, window: Window) -> tuple[int, int] | None:
    """Begin and end of a finding, cut to the window; None where it is outside. Without a step it is about all."""
    if finding.first_step is None and finding.last_step is None:
        return window.begin_ns, window.end_ns
    found = steps.between(finding.first_step, finding.last_step)
    if found is None:
        # Of steps that nobody finished: a rank that died in the first one, or in the one after the last.
        ended = finding.first_step is not None and len(steps.number) and finding.first_step > steps.number[-1]
        found = (int(steps.end_ns[-1]), window.end_ns) if ended else (window.begin_ns, window.end_ns)
    begin, end = max(found[0], window.begin_ns), min(found[1], window.end_ns)
    return (begin, end) if begin <= end else None


def _finding(batch: Batch, finding: Finding, begin_ns: int, end_ns: int) -> Draft:
    cost, at = finding.cost, finding.location
    texts = {
        "cause": finding.cause,
        "severity": finding.severity,
        "ranks": "all ranks" if finding.all_ranks else numbered(finding.ranks) if finding.ranks else "",
        "phase": finding.phase,
        "component": finding.component,
        "place": f"{at.file}:{at.line} {at.function}" if at is not None else None,
        "steps": _steps_text(finding),
        "share": percent(cost.share) if cost.share is not None else None,
        "recoverable share": percent(cost.recoverable_share) if cost.recoverable_share is not None else None,
        "explains": ", ".join(finding.explains),
    }
    texts |= {f"evidence {number}": _evidence(one) for number, one in enumerate(finding.evidence, 1)}
    texts |= {f"next {number}": what for number, what in enumerate(finding.next, 1)}
    return Draft(
        np.array([begin_ns]), np.array([end_ns]), batch.same(finding.title, 1), batch.same(finding.severity, 1),
        {
            "confidence": np.array([finding.confidence]),
            "ms per step": np.array([np.nan if cost.ms_per_step is None else cost.ms_per_step]),
        },
        {name: batch.same(text, 1) for name, text in texts.items() if text},
    )  # fmt: skip


def _steps_text(finding: Finding) -> str:
    first, last = finding.first_step, finding.last_step
    if first is None or last is None or first == last:
        return f"{first if first is not None else last}" if (first, last) != (None, None) else ""
    return f"{first} to {last}"


def _evidence(one: Evidence) -> str:
    """`wait for the next batch: 61.4 ms (ranks 2 and 3)`."""
    if one.value is None:
        value = "not finite"
    elif one.unit in _NS:
        value = ms(one.value * _NS[one.unit])
    elif one.unit in ("share", "%"):
        value = percent(one.value if one.unit == "share" else one.value / 100)
    else:
        value = f"{one.value:,.6g}" + (f" {one.unit}" if one.unit and one.unit != "count" else "")
    return f"{one.text}: {value}" + (f" ({numbered(one.ranks)})" if one.ranks else "")
