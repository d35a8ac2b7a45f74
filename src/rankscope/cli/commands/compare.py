"""`rankscope compare`: two runs side by side, told apart from noise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.base.errors import UserError
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, check_targets, runs_dir

if TYPE_CHECKING:
    from rankscope.records.imported.device_trace import DeviceTrace


class Compare(Command):
    """Compare step time, phases and verdicts of two runs; or the operators and kernels of two torch.profiler traces."""

    name = "compare"
    example = "rankscope compare 20260101-120000-ab12cd last"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, meaning in (("A", "before"), ("B", "after")):
            parser.add_argument(
                name.lower(), metavar=name, help=f"the run {meaning}: id, name, folder, `last`, report.json; or a trace"
            )
        add_runs_dir(parser)
        parser.add_argument("--report-json", metavar="FILE", type=Path, help="also write the comparison as JSON")

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import report_of_text
        from rankscope.cli.output import layout, write_asked
        from rankscope.views.comparison import comparison_to_json
        from rankscope.views.tables import render_compare

        check_targets(args)
        traces = _traces(args.a, args.b)
        if traces is not None:
            _compare_traces(args, *traces)
            return 0
        a, b = (report_of_text(text, runs_dir(args)) for text in (args.a, args.b))
        sys.stdout.write(render_compare(a, b, *layout(sys.stdout)))
        if args.report_json is not None:
            write_asked(args.report_json, comparison_to_json(a, b))
        return 0


def _traces(first: str, second: str) -> tuple[DeviceTrace, DeviceTrace] | None:
    """Both as device traces; None where they are something else. UserError where one of them is broken."""
    from rankscope.artefacts.opening import head_of
    from rankscope.artefacts.reader import Unreadable
    from rankscope.artefacts.readers.kineto import Kineto
    from rankscope.records.imported.device_trace import DeviceTrace

    paths = Path(first), Path(second)
    if not all(path.is_file() for path in paths):
        return None
    reader = Kineto()
    found = []
    for path, other in zip(paths, paths[::-1], strict=True):
        try:
            if not reader.recognises(path, head_of(path)):
                if reader.recognises(other, head_of(other)):
                    raise UserError(f"{path}: is no torch.profiler trace, and {other} is one; give two of a kind")
                return None
            found += [table for table in reader.read(path) if isinstance(table, DeviceTrace)][:1]
        except Unreadable as error:
            raise UserError(f"{path}: {error}") from error
    if len(found) < len(paths):
        raise UserError(f"{first}, {second}: one of them holds no events to compare")
    return found[0], found[1]


def _compare_traces(args: argparse.Namespace, first: DeviceTrace, second: DeviceTrace) -> None:
    from rankscope.cli.output import layout, write_asked
    from rankscope.report.trace_comparison import compare_device_traces, trace_comparison_to_json
    from rankscope.views.trace_comparison import render_trace_comparison

    comparison = compare_device_traces(first, second)
    sys.stdout.write(render_trace_comparison(comparison, *layout(sys.stdout)))
    if args.report_json is not None:
        write_asked(args.report_json, trace_comparison_to_json(comparison))
