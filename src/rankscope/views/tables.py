"""Tables over several runs: the history, and two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from rankscope.report.report import Report, Step, Verdict, first_problem
from rankscope.views.layout import table, to_text
from rankscope.views.quantities import UNKNOWN, count_text, ratio_text, time_text

NOISE_FLOOR = 0.02
"""Two runs of the same code on the same machine differ by about this much."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the history. None: the run is still going or left no report."""

    id: str
    name: str
    started: str | None
    duration_s: float | None
    world_size: int | None
    steps: int | None
    median_ms: float | None
    verdict: Verdict | None
    cause: str | None
    note: str = ""
    """What to show in place of a verdict that there is none of."""


def run_row(report: Report) -> RunRow:
    """The row of a run from its report."""
    run = report.run
    root = first_problem(report)
    return RunRow(
        run.id,
        run.name,
        run.started,
        run.duration_s,
        run.world_size,
        run.steps,
        report.step.median_ms,
        report.verdict,
        root.cause if root else None,
    )


def render_runs(rows: Iterable[RunRow], width: int = 100, color: bool = False) -> str:
    """The history as a table, in the order given."""
    cells = [["run", "name", "started", "took", "ranks", "step", "verdict"]]
    for row in rows:
        cells.append(
            [
                row.id,
                row.name,
                row.started[5:16].replace("T", " ") if row.started else "-",
                "-" if row.duration_s is None else time_text(row.duration_s * 1e3),
                _or_dash(row.world_size),
                "-" if row.median_ms is None else time_text(row.median_ms),
                f"{row.verdict or row.note or 'no report'}{f': {row.cause}' if row.cause else ''}",
            ]
        )
    if len(cells) == 1:
        return "no runs yet; `rankscope run -- COMMAND` makes the first\n"
    return to_text(table(cells, right={3, 4, 5}, width=width, shrink=(1, 6, 0)), width, color)


def render_compare(a: Report, b: Report, width: int = 100, color: bool = False) -> str:
    """Run `b` beside run `a`: verdict, step time and phases, with the ratio b / a and what it is worth."""
    cells = [["", a.run.name or a.run.id, b.run.name or b.run.id, "ratio", ""]]
    cells.append(["run", a.run.id, b.run.id, "", ""])
    cells.append(["verdict", a.verdict, b.verdict, "", "" if a.verdict == b.verdict else "changed"])
    roots = [root.cause if root else "-" for root in (first_problem(a), first_problem(b))]
    cells.append(["root cause", *roots, "", "" if roots[0] == roots[1] else "changed"])
    cells.append(["ranks", _or_dash(a.run.world_size), _or_dash(b.run.world_size), "", _same(a, b)])
    cells.append(["steps", _or_dash(a.run.steps), _or_dash(b.run.steps), "", ""])
    noise = noise_ms(a.step, b.step)
    cells.append(_compared("step, median", a.step.median_ms, b.step.median_ms, noise))
    cells.append(_compared("step, p95", a.step.p95_ms, b.step.p95_ms, None, judge=False))
    phases_a, phases_b = phase_ms(a.step), phase_ms(b.step)
    order = sorted(phases_a | phases_b, key=lambda phase: -max(phases_a.get(phase, 0.0), phases_b.get(phase, 0.0)))
    for phase in order:
        # A phase is absent from an exact budget only where nothing was charged to it; without a budget it is unknown.
        ms_a = phases_a.get(phase, 0.0 if phases_a else None)
        ms_b = phases_b.get(phase, 0.0 if phases_b else None)
        cells.append(_compared(f"  {phase}", ms_a, ms_b, noise))
    lines = table(cells, right={1, 2, 3}, width=width, shrink=(1, 2))
    notes = [Text(_noise_note(noise), style="dim")]
    return to_text([*lines, Text(), *notes], width, color)


def noise_ms(a: Step, b: Step) -> float | None:
    """How much the medians of two such runs may differ without meaning anything; None where it cannot be told.

    Three standard errors of the difference of the medians, the spread of a step taken from its p95 (1.645
    standard deviations above the median), and never less than what two equal runs differ by.
    """
    variance = 0.0
    floor = 0.0
    for step in (a, b):
        if step.median_ms is None or step.p95_ms is None or step.steps < 2:
            return None
        deviation = max(0.0, step.p95_ms - step.median_ms) / 1.645
        # The median of n values has a standard error of 1.2533 deviations / sqrt(n).
        variance += (1.2533 * deviation) ** 2 / step.steps
        floor = max(floor, NOISE_FLOOR * step.median_ms)
    return max(3 * math.sqrt(variance), floor)


def _compared(what: str, a: float | None, b: float | None, noise: float | None, *, judge: bool = True) -> list[str]:
    row = [what, UNKNOWN if a is None else time_text(a), UNKNOWN if b is None else time_text(b), "", ""]
    if a is None or b is None:
        return row
    if a > 0:
        row[3] = ratio_text(b / a)
    if judge and noise is not None:
        inside = abs(b - a) <= noise
        row[4] = "inside noise" if inside else f"{'slower' if b > a else 'faster'} by {time_text(abs(b - a))}"
    return row


def _noise_note(noise: float | None) -> str:
    if noise is None:
        return "noise unknown: too few timed steps; no difference is judged"
    return f"inside noise: up to {time_text(noise)}, from the spread of the steps of both runs"


def phase_ms(step: Step) -> dict[str, float]:
    """What the mean step spends in each phase, over all ranks."""
    phases: dict[str, float] = {}
    for line in step.budget:
        phases[line.phase] = phases.get(line.phase, 0.0) + line.ms
    return phases


def _same(a: Report, b: Report) -> str:
    if a.run.fingerprint and b.run.fingerprint and a.run.fingerprint != b.run.fingerprint:
        return "not the same set-up"
    return "" if a.run.world_size == b.run.world_size else "not the same set-up"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else count_text(value)
