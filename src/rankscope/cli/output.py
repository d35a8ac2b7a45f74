"""Where a report goes: terminal, JSON, HTML, and the exit code that a gate asks for."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from rankscope.base.errors import UserError
from rankscope.base.rundir import RunDir
from rankscope.cli.options import FAILED_GATE
from rankscope.cli.session import save, write_text
from rankscope.report.details import Details
from rankscope.report.report import Report, to_json
from rankscope.views.html.page import render_html
from rankscope.views.terminal import render


def layout(stream: TextIO) -> tuple[int, bool]:
    """(columns, colour) for a stream: as wide as the terminal, 60 to 100 columns."""
    terminal = stream.isatty()
    width = min(100, shutil.get_terminal_size((100, 24)).columns) if terminal else 100
    return max(60, width), terminal and "NO_COLOR" not in os.environ


def show(report: Report, stream: TextIO) -> None:
    """Print the report."""
    width, color = layout(stream)
    stream.write(render(report, width=width, color=color))
    stream.flush()


def keep(run: RunDir, report: Report, details: Details) -> None:
    """Leave the report in the run's folder and say where its HTML page is; one line where it cannot be kept."""
    page = run.root / "report.html"
    try:
        save(run, report, details)
        write_text(page, render_html(report, details))
    except OSError as error:
        print(f"rankscope: the report could not be kept in {run.root} ({error.strerror})", file=sys.stderr)
    else:
        print(f"rankscope: run {run.id}, HTML report in {page}", file=sys.stderr)


def write_files(args: argparse.Namespace, report: Report, details: Details) -> None:
    """The files that the user asked for. A full disk is the user's to solve: one line, no traceback."""
    for path, make in ((args.report_json, to_json), (args.report_html, lambda r: render_html(r, details))):
        if path is not None:
            write_asked(path, make(report))


def write_asked(path: Path, text: str) -> None:
    """Write a file that the user asked for and say so; UserError where it cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    print(f"rankscope: report written to {path}", file=sys.stderr)


def gate(args: argparse.Namespace, report: Report) -> int:
    """0, or 3 where `--fail-on` is met."""
    if args.fail_on is None:
        return 0
    bad = ("critical",) if args.fail_on == "critical" else ("warning", "critical")
    return FAILED_GATE if any(f.severity in bad for f in report.findings) else 0
