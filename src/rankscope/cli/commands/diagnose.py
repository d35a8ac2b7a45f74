"""`rankscope diagnose`: the report from what is on disk."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.base.errors import UserError
from rankscope.base.manifest import read_manifest
from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command
from rankscope.cli.options import add_report_options, add_runs_dir, check_targets, runs_dir, whole_number

if TYPE_CHECKING:
    from rankscope.report.details import Details
    from rankscope.report.report import Report

WAIT_FOR_RECORDER_S = 60.0
"""An analysis beside the training takes seconds, of a long run tens of them."""


class Diagnose(Command):
    """Say what is wrong with a run: finished, running or killed."""

    name = "diagnose"
    example = "rankscope diagnose rankscope-runs/20260101-120000-ab12cd --report-html report.html"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", nargs="+", help="a run: its folder, id, name, or `last`")
        add_runs_dir(parser)
        parser.add_argument("--baseline", metavar="RUN", help="also compare with this run (folder, id, report.json)")
        parser.add_argument(
            "--world-size",
            type=whole_number(1),
            metavar="N",
            help="ranks of the job (a run of rankscope knows its own)",
        )
        add_report_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import find_run, report_of_text
        from rankscope.cli.output import gate, layout, show, write_files
        from rankscope.views.tables import render_compare

        check_targets(args)
        if len(args.path) > 1:
            raise UserError("give one run at a time; two runs are compared by `rankscope compare A B`")
        baseline = report_of_text(args.baseline, runs_dir(args)) if args.baseline else None
        path = Path(args.path[0])
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is a file; give a run's folder (files of other tools are not read yet)")
        if not path.exists() and len(path.parts) > 1:
            raise UserError(f"{path}: does not exist; see `rankscope runs` for the runs of this folder")
        if args.world_size is not None:
            print("rankscope: --world-size is not needed: a run of rankscope knows its ranks", file=sys.stderr)
        report, details = diagnose(find_run(args.path[0], runs_dir(args)))
        show(report, sys.stdout)
        if baseline is not None:
            sys.stdout.write("\n" + render_compare(baseline, report, *layout(sys.stdout)))
        write_files(args, report, details)
        return gate(args, report)


def diagnose(run: RunDir) -> tuple[Report, Details]:
    """Report and details of one run, which its recorder has made where the run is going on. Raises UserError."""
    from rankscope.cli.progress import working
    from rankscope.cli.session import analyse, save
    from rankscope.store.lock import holder

    recorder = holder(run.root)
    if recorder is not None and not read_manifest(run.root).finished:
        answer = _ask(run, recorder)
        if answer is not None:
            return answer
    with working("analysing the records"):
        report, details = analyse(run)
    with contextlib.suppress(OSError):  # a folder that must not be written to still has its report shown
        save(run, report, details)
    return report, details


def _ask(run: RunDir, recorder: int) -> tuple[Report, Details] | None:
    """Of a run that is going on, its recorder has the report made: only it knows what is not in the store yet.

    None: it has ended meanwhile.
    """
    from rankscope.cli.history import read_report
    from rankscope.report.details import details_from_json
    from rankscope.store.lock import holder

    request = run.request
    try:
        request.touch()
        asked_ns = request.stat().st_mtime_ns
    except OSError as error:
        raise UserError(f"{run.root}: the run is going on, its folder cannot be written ({error.strerror})") from error
    print(f"rankscope: the run is going on; asking its recorder (process {recorder})", file=sys.stderr)
    deadline = time.monotonic() + WAIT_FOR_RECORDER_S
    while request.exists():
        if time.monotonic() > deadline:
            raise UserError(f"{run.root}: its recorder (process {recorder}) did not answer within a minute; try again")
        if holder(run.root) is None:
            request.unlink(missing_ok=True)
            return None
        time.sleep(0.1)
    if not run.report.exists() or run.report.stat().st_mtime_ns < asked_ns:
        raise UserError(f"{run.root}: its recorder could not make a report; {run.recorder_log} says why")
    details = run.root / "details.json"
    return read_report(run), details_from_json(details.read_text(encoding="utf-8"), str(details))
