"""`rankscope show`: the report of a run once more."""

from __future__ import annotations

import argparse
import sys

from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir


class Show(Command):
    """Show the report that was kept with a run."""

    name = "show"
    example = "rankscope show last"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run_id", metavar="RUN", help="its id, the unique start of it, name, folder, or `last`")
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import find_run, read_report
        from rankscope.cli.output import show

        run = find_run(args.run_id, runs_dir(args))
        show(read_report(run), sys.stdout)
        page = run.root / "report.html"
        if page.exists():
            print(f"rankscope: HTML report in {page}", file=sys.stderr)
        return 0
