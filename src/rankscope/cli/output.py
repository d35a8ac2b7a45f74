"""Where a report goes: terminal, JSON, HTML, and the exit code that a gate asks for."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from rankscope.base.errors import UserError
from rankscope.cli.session import write_text
from rankscope.report.details import Details
from rankscope.report.report import Report, to_json
from rankscope.views.html.page import render_html
from rankscope.views.terminal import render

FAILED_GATE = 3


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command that makes a report has."""
    parser.add_argument("--report-json", metavar="FILE", type=Path, help="also write the report as JSON")
    parser.add_argument("--report-html", metavar="FILE", type=Path, help="also write the report as one HTML file")
    parser.add_argument(
        "--fail-on", choices=("warning", "critical"), help=f"exit with {FAILED_GATE} where such a finding is made"
    )


def check_targets(args: argparse.Namespace) -> None:
    """Find out before the work that a report cannot be written."""
    for path in (args.report_json, args.report_html):
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"{path}: its folder {folder} does not exist; create it or choose another place")
        if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
            raise UserError(f"{path}: cannot be written; choose another place")


def show(report: Report, stream: TextIO) -> None:
    """Print the report as wide as the terminal allows, at most 100 columns."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns if stream.isatty() else 100)
    color = stream.isatty() and "NO_COLOR" not in os.environ
    stream.write(render(report, width=max(60, width), color=color))
    stream.flush()


def write_files(args: argparse.Namespace, report: Report, details: Details) -> None:
    """The files that the user asked for. A full disk is the user's to solve: one line, no traceback."""
    for path, make in ((args.report_json, to_json), (args.report_html, lambda r: render_html(r, details))):
        if path is not None:
            try:
                write_text(path, make(report))
            except OSError as error:
                raise UserError(f"{path}: cannot be written ({error.strerror})") from error
            print(f"rankscope: report written to {path}", file=sys.stderr)


def gate(args: argparse.Namespace, report: Report) -> int:
    """0, or 3 where `--fail-on` is met."""
    if args.fail_on is None:
        return 0
    bad = ("critical",) if args.fail_on == "critical" else ("warning", "critical")
    return FAILED_GATE if any(f.severity in bad for f in report.findings) else 0
