"""`rankscope compare`: two runs side by side, told apart from noise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, check_targets, runs_dir


class Compare(Command):
    """Compare step time, phases and verdicts of two runs."""

    name = "compare"
    example = "rankscope compare 20260101-120000-ab12cd last"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, meaning in (("A", "before"), ("B", "after")):
            parser.add_argument(
                name.lower(), metavar=name, help=f"the run {meaning}: id, name, folder, `last`, or a report.json"
            )
        add_runs_dir(parser)
        parser.add_argument("--report-json", metavar="FILE", type=Path, help="also write the comparison as JSON")

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import report_of_text
        from rankscope.cli.output import layout, write_asked
        from rankscope.views.comparison import comparison_to_json
        from rankscope.views.tables import render_compare

        check_targets(args)
        a, b = (report_of_text(text, runs_dir(args)) for text in (args.a, args.b))
        sys.stdout.write(render_compare(a, b, *layout(sys.stdout)))
        if args.report_json is not None:
            write_asked(args.report_json, comparison_to_json(a, b))
        return 0
