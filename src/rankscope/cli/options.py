"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.base.rundir import default_runs_dir

FAILED_GATE = 3
"""Exit code where a finding as bad as `--fail-on` was made."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command that makes a report has."""
    parser.add_argument("--report-json", metavar="FILE", type=Path, help="also write the report as JSON")
    parser.add_argument("--report-html", metavar="FILE", type=Path, help="also write the report as one HTML file")
    parser.add_argument(
        "--fail-on", choices=("warning", "critical"), help=f"exit with {FAILED_GATE} where such a finding is made"
    )


def add_runs_dir(parser: argparse.ArgumentParser) -> None:
    """`--runs-dir`, read with `runs_dir`."""
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where run folders are kept (./rankscope-runs)")


def whole_number(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number in a range."""

    def convert(text: str) -> int:
        value = int(text)
        if value < lowest or (highest is not None and value > highest):
            wanted = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"
            raise argparse.ArgumentTypeError(f"{text} is out of range: write a whole number, {wanted}")
        return value

    convert.__name__ = "whole number"  # argparse names the type where the text is no number at all
    return convert


def runs_dir(args: argparse.Namespace) -> Path:
    """Where this command looks for runs or puts them."""
    folder: Path = args.runs_dir or default_runs_dir()
    try:
        return folder.absolute()
    except FileNotFoundError:
        return folder  # the working folder has been deleted: nothing can be there


def check_targets(args: argparse.Namespace) -> None:
    """Find out before the work that a report cannot be written."""
    for name in ("report_json", "report_html"):
        path: Path | None = getattr(args, name, None)
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"{path}: its folder {folder} does not exist; create it or choose another place")
        if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
            raise UserError(f"{path}: cannot be written; choose another place")
