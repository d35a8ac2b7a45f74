"""What the HTML report draws: timelines, heat map, step times, source lines."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.records.host import GcPause
from rankscope.records.training import Backward
from rankscope.report.details import (
    Details,
    Marker,
    Snippet,
    StepTimeline,
    TimelineSpan,
    heat_of,
    step_times_of,
)
from rankscope.report.report import Report
from rankscope.report.source_lines import read_source

CONTEXT_LINES = 4
"""Lines kept before and after a place that a finding names."""
MAX_SPANS = 3000
"""Of one step, so that the page stays small (70 bytes each). Each rank has its share; what comes after that in the step
is counted and left out."""


def build_details(facts: Facts, report: Report, sources: Path) -> Details:
    """All drawings that the run's facts allow. `sources`: the folder with the copies of source files."""
    quoted = _sources(report, sources)
    if not facts.ranks or not len(facts.steps):
        return Details(sources=quoted)
    order = np.argsort(facts.step_ns)
    slowest, typical = int(order[-1]), int(order[len(order) // 2])
    steps = [_timeline(facts, slowest, "slowest")]
    if typical != slowest:
        steps.append(_timeline(facts, typical, "typical"))
    numbers = [r.rank for r in facts.ranks]
    own = [facts.per_step(p, facts.work(p)) / 1e6 for p in range(facts.size)]
    both = [facts.per_step(p, facts.in_window(p)) / 1e6 for p in range(facts.size)]
    return Details(
        steps=tuple(steps),
        heat=heat_of(numbers, facts.steps.tolist(), [row.tolist() for row in own], "time that the rank itself worked"),
        sources=quoted,
        step_ms=step_times_of(facts.steps.tolist(), {n: row.tolist() for n, row in zip(numbers, both, strict=True)}),
        markers=tuple(
            Marker(f.first_step, f.cause) for f in report.findings if f.first_step is not None and f.severity != "info"
        ),
    )


def _timeline(facts: Facts, index: int, label: Literal["slowest", "typical"]) -> StepTimeline:
    """What each rank did in one step of the window; `index` counts the steps of the window."""
    begin, end = int(facts.attribution.start[index]), int(facts.attribution.end[index])
    step = int(facts.steps[index])
    pieces = facts.attribution.pieces
    critical = {(int(p["rank"]), int(p["segment"])) for p in pieces[pieces["step"] == step]}
    spans: list[TimelineSpan] = []
    left_out = 0
    for position, own in enumerate(facts.timelines):
        segments = own.segments
        low = int(np.searchsorted(segments["end"], begin, side="right"))
        high = int(np.searchsorted(segments["start"], end))
        shown = min(high, low + max(1, MAX_SPANS // facts.size))
        left_out += max(0, high - shown)
        for at in range(low, shown):
            start, stop = max(int(segments["start"][at]), begin), min(int(segments["end"][at]), end)
            phase = own.phases[int(segments["phase"][at])]
            waits = int(segments["collective"][at]) >= 0
            spans.append(
                TimelineSpan(
                    rank=facts.ranks[position].rank,
                    start_us=(start - begin) / 1e3,
                    duration_us=(stop - start) / 1e3,
                    phase=phase,
                    name=_name(facts, position, at),
                    kind="wait" if waits else "communication" if phase == "communication" else "work",
                    critical=(position, at) in critical,
                )
            )
    return StepTimeline(step, label, begin, tuple(spans), left_out)


def _name(facts: Facts, position: int, at: int) -> str:
    """What a segment is, in a few words."""
    own = facts.timelines[position]
    segment = own.segments[at]
    pid = facts.ranks[position].pid
    collective = int(segment["collective"])
    if collective >= 0:
        return f"waits for {facts.tables.name(pid, int(own.collectives['name'][collective]))}"
    rows = own.rows.get(int(segment["kind"]))
    if rows is not None and int(segment["row"]) >= 0 and int(segment["kind"]) not in (Backward.code, GcPause.code):
        name = facts.tables.name(pid, int(rows["name"][int(segment["row"])]))
        return name.rpartition(":")[2] if name.count(":") >= 2 else name
    return "garbage collection" if int(segment["kind"]) == GcPause.code else own.phases[int(segment["phase"])]


def _sources(report: Report, folder: Path) -> dict[str, tuple[Snippet, ...]]:
    """By file: the lines around each place that a finding names."""
    snippets: dict[str, list[Snippet]] = {}
    for finding in report.findings:
        if finding.location is None:
            continue
        lines = read_source(finding.location.file, folder)
        if lines is None:
            continue
        first = max(1, finding.location.line - CONTEXT_LINES)
        part = lines[first - 1 : finding.location.line + CONTEXT_LINES]
        if part:
            snippets.setdefault(finding.location.file, []).append(Snippet(first, tuple(part)))
    return {file: tuple(parts) for file, parts in snippets.items()}
