"""The results of the bench as text: the line of a case, the closing table, and its part of docs/faults.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scoring import WhatIf

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
INTRODUCTION = f"""# Faults on purpose

Each folder of `faults/` holds a training program with one real fault, or a healthy one, and in `expected.json` what a
good tool says about it. `python faults/bench.py --out docs/faults.md` runs them all under `rankscope run` and writes
the table below; nothing in it is typed by hand. A case counts as exact only if the first finding has the right cause,
the right ranks and the right place; a healthy program (and each repaired twin of a faulty one) only if nothing above
`info` is reported and the verdict is healthy. Programs that cannot run here are listed as skipped, with the reason,
and do not count as found. The faults are small and made on purpose: the table says what is found here, not on every
cluster.

{BEGIN}
{END}
"""
HEADER = ("case", "title", "expected", "found", "ranks", "place", "exact?", "seconds", "overhead")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `verdict` is yes, no or skipped, with the reason in `problems`."""

    case: str
    title: str
    expected: str
    found: str
    ranks: str
    place: str
    verdict: str
    seconds: float | None
    overhead_share: float | None
    problems: tuple[str, ...] = ()

    def cells(self) -> tuple[str, ...]:
        reason = f" ({'; '.join(self.problems)})" if self.problems else ""
        return (
            self.case,
            self.title,
            self.expected,
            self.found or "-",
            self.ranks or "-",
            self.place or "-",
            self.verdict + reason,
            "-" if self.seconds is None else f"{self.seconds:.1f}",
            "-" if self.overhead_share is None else f"{100 * self.overhead_share:.2f} %",
        )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def what_if_table(results: dict[str, WhatIf]) -> str:
    rows = [
        (
            case,
            f"{100 * result.measured:.1f} %",
            "-" if result.predicted is None else f"{100 * result.predicted:.1f} %",
            "-" if result.difference_points is None else f"{result.difference_points:+.1f}",
            "yes" if result.within else "no",
        )
        for case, result in results.items()
    ]
    return markdown_table(("case", "gain measured", "gain predicted", "difference (points)", "within 5 points?"), rows)


def text_table(rows: Sequence[Row]) -> str:
    lines = [HEADER, *(row.cells() for row in rows)]
    widths = [min(44, max(len(line[column]) for line in lines)) for column in range(len(HEADER))]
    padded = [[cell[:width].ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def replace_between_markers(text: str, body: str) -> str:
    """The text with `body` between the markers, which are added at the end where there are none.

    ValueError where one is missing or they cross.
    """
    counts = text.count(BEGIN), text.count(END)
    if counts == (0, 0):
        return f"{text.rstrip()}\n\n{BEGIN}\n{body.strip()}\n{END}\n".lstrip()
    begin, end = text.find(BEGIN), text.find(END)
    if counts != (1, 1) or begin > end:
        raise ValueError(f"write {BEGIN} and then {END}, each once")
    return f"{text[:begin]}{BEGIN}\n{body.strip()}\n{text[end:]}"


def write_page(path: Path, body: str) -> None:
    text = path.read_text() if path.exists() else INTRODUCTION
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(replace_between_markers(text, body))
