"""The results of the bench as text: the line of a case, the closing table, and its part of docs/faults.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scoring import FAMILIES, WhatIf

INTRODUCTION = """# Faults on purpose

Each folder of `faults/` holds a training program with one real fault, or a healthy one, and in `expected.json` what a
good tool says about it. `make faults` runs them all under `rankscope run` and writes the tables below; nothing in them
is typed by hand. A case counts as exact only if the first finding has the right cause, the right ranks and the right
place; a healthy program (and each repaired twin of a faulty one) only if nothing above `info` is reported and the
verdict is healthy. Programs that cannot run here are listed as skipped, with the reason, and do not count as found. The
faults are small and made on purpose: the tables say what is found here, not on every cluster.

## Slow runs

{p}

## Hangs and crashes

A program that hangs is ended two seconds after the first failure was told on the terminal, or 60 s after it came to a
stand; the report is that of its end. `told after` is the time from the last record of the first rank that stopped to
the line that names the right cause and ranks; programs that end by themselves have none. `line` says whether the first
finding names the one line that is the fault. In a control something long and rightful happens; findings that are true
of it (`allowed` in its `expected.json`, a checkpoint that everybody waits for) are no false alarm.

{c}

## Numerics

A program of this kind ends by itself and looks well, but learns the wrong thing, less than it could, or nothing. Its
controls are healthy trainings of many kinds, some of which look like a fault: losses that play against each other, a
schedule that restarts, steps that are skipped, a frozen backbone, units that are mostly silent.

{d}

## Data

The batches are at fault: what is in them, in which order they come, or how they are put together. The controls are the
repaired programs.

{e}
"""
COLUMNS = (
    "case", "title", "expected", "found", "ranks", "place", "line", "told after", "exact?", "seconds", "overhead",
)  # fmt: skip
EMPTY = "-"


def markers(family: str) -> tuple[str, str]:
    """The lines of a page between which the tables of a family stand."""
    return f"<!-- bench:{family}:begin -->", f"<!-- bench:{family}:end -->"


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
    line: str = ""
    told_after: str = ""

    def cells(self) -> tuple[str, ...]:
        reason = f" ({'; '.join(self.problems)})" if self.problems else ""
        return (
            self.case,
            self.title,
            self.expected,
            self.found or EMPTY,
            self.ranks or EMPTY,
            self.place or EMPTY,
            self.line or EMPTY,
            self.told_after or EMPTY,
            self.verdict + reason,
            EMPTY if self.seconds is None else f"{self.seconds:.1f}",
            EMPTY if self.overhead_share is None else f"{100 * self.overhead_share:.2f} %",
        )


def filled_columns(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells without the columns that are empty in all rows."""
    cells = [row.cells() for row in rows]
    kept = [number for number in range(len(COLUMNS)) if any(line[number] != EMPTY for line in cells)]
    return tuple(COLUMNS[number] for number in kept), [tuple(line[number] for number in kept) for line in cells]


def case_table(rows: Sequence[Row]) -> str:
    return markdown_table(*filled_columns(rows))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def what_if_table(results: Mapping[str, WhatIf]) -> str:
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
    header, cells = filled_columns(rows)
    lines = [header, *cells]
    widths = [min(44, max(len(line[column]) for line in lines)) for column in range(len(header))]
    padded = [[cell[:width].ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def replace_between_markers(text: str, family: str, body: str) -> str:
    """The text with `body` between the family's markers, which are added at the end where there are none.

    ValueError where one is missing or they cross.
    """
    first, last = markers(family)
    counts = text.count(first), text.count(last)
    if counts == (0, 0):
        return f"{text.rstrip()}\n\n{first}\n{body.strip()}\n{last}\n".lstrip()
    begin, end = text.find(first), text.find(last)
    if counts != (1, 1) or begin > end:
        raise ValueError(f"write {first} and then {last}, each once")
    return f"{text[:begin]}{first}\n{body.strip()}\n{text[end:]}"


def write_page(path: Path, bodies: Mapping[str, str]) -> None:
    """Write the tables of each family in `bodies`; what else is on the page stays."""
    places = {family: "\n".join(markers(family)) for family in FAMILIES}
    text = path.read_text() if path.exists() else INTRODUCTION.format(**places)
    for family, body in bodies.items():
        text = replace_between_markers(text, family, body)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
