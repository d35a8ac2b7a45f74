"""Two device traces side by side on a terminal: what was added, what went, what takes longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from rankscope.report.trace_comparison import ChangedOperation, TraceComparison, TraceSide
from rankscope.views.layout import shorten_middle, table, to_text
from rankscope.views.quantities import UNKNOWN, count_text, share_text, time_text

MOST = 12
"""Rows of one table; the JSON has all."""


def render_trace_comparison(comparison: TraceComparison, width: int = 100, color: bool = False) -> str:
    """The comparison as text of at most `width` columns."""
    return to_text(_lines(comparison, width), width, color)


def _lines(comparison: TraceComparison, width: int) -> Iterator[Text]:
    a, b = comparison.a, comparison.b
    yield from table(
        [["", shorten_middle(a.file, 36), shorten_middle(b.file, 36)], *_sides(a, b)],
        right={1, 2}, width=width, shrink=(1, 2),
    )  # fmt: skip
    of = "a step" if comparison.per_step else "the whole trace"
    for title, on_device in (("On the device", True), ("On the host", False)):
        rows = [row for row in comparison.operations if row.on_device == on_device]
        changed = [row for row in rows if row.change != "equal" or row.more_ms]
        if not rows:
            continue
        yield Text()
        if not changed:
            yield Text(f"{title}: no difference", style="bold")
            continue
        yield Text(f"{title}, {_counted(rows)}; in {of}, the largest difference first", style="bold")
        cells = [["", "calls", "", "time", "", "difference", "name"]]
        for row in changed[:MOST]:
            cells.append(
                [
                    row.change if row.change != "equal" else "",
                    *(count_text(calls) for calls in row.calls),
                    *(time_text(ms) if ms else "0" for ms in row.ms),
                    ("+" if row.more_ms > 0 else "-" if row.more_ms < 0 else "") + time_text(abs(row.more_ms)),
                    row.name,
                ]
            )
        yield from table(cells, right={1, 2, 3, 4, 5}, width=width, shrink=(6,))
        if len(changed) > MOST:
            yield Text(f"and {len(changed) - MOST:,} more, listed in the JSON (--report-json)", style="dim")


def _counted(rows: Sequence[ChangedOperation]) -> str:
    found = [f"{sum(row.change == kind for row in rows):,} {kind}" for kind in ("added", "removed", "more", "fewer")]
    return ", ".join(text for text in found if not text.startswith("0 ")) or "as often as before"


def _sides(a: TraceSide, b: TraceSide) -> list[list[str]]:
    def row(what: str, one: float | None, other: float | None) -> list[str]:
        return [what, *("–" if value is None else share_text(value) for value in (one, other))]

    return [
        ["steps", count_text(a.steps), count_text(b.steps)],
        ["step time", *(UNKNOWN if side.step_ms is None else time_text(side.step_ms) for side in (a, b))],
        row("compute", a.compute_share, b.compute_share),
        row("exposed communication", a.exposed_communication_share, b.exposed_communication_share),
        row("exposed memory", a.exposed_memory_share, b.exposed_memory_share),
        row("idle", a.idle_share, b.idle_share),
    ]
