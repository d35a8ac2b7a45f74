"""`rankscope diagnose`: the report from what is on disk."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.base.manifest import read_manifest
from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command
from rankscope.cli.output import add_report_options, check_targets, gate, show, write_files
from rankscope.cli.session import analyse, save
from rankscope.report.details import Details, details_from_json
from rankscope.report.report import Report, from_json
from rankscope.store.lock import holder

WAIT_FOR_RECORDER_S = 60.0


class Diagnose(Command):
    """Say what is wrong with a run: finished, running or killed."""

    name = "diagnose"
    example = "rankscope diagnose rankscope-runs/20260101-120000-ab12 --report-html report.html"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", nargs="+", type=Path, help="a run's folder")
        add_report_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_targets(args)
        if len(args.path) > 1:
            raise UserError("give one run folder at a time; two runs are compared by `rankscope compare A B`")
        report, details = diagnose(args.path[0])
        show(report, sys.stdout)
        write_files(args, report, details)
        return gate(args, report)


def diagnose(path: Path) -> tuple[Report, Details]:
    """Report and details of one run folder."""
    if not path.exists():
        raise UserError(f"{path}: does not exist; see `rankscope runs` for the runs of this folder")
    if not path.is_dir():
        raise UserError(f"{path}: is a file; give a run's folder (files of other tools are not read yet)")
    read_manifest(path)
    run = RunDir(path.absolute())
    recorder = holder(run.store)
    if recorder is not None:
        return _ask(run, recorder)
    report, details = analyse(run)
    try:
        save(run, report, details)
    except OSError:
        pass  # a folder that must not be written to still has its report shown
    return report, details


def _ask(run: RunDir, recorder: int) -> tuple[Report, Details]:
    """Of a run that is going on, its recorder makes the report: only it may read the store."""
    request = run.root / "report.request"
    try:
        request.touch()
    except OSError as error:
        raise UserError(f"{run.root}: the run is going on and its folder cannot be written ({error.strerror})") from error
    print(f"rankscope: the run is going on; asking its recorder (process {recorder})", file=sys.stderr)
    deadline = time.monotonic() + WAIT_FOR_RECORDER_S
    while request.exists():
        if time.monotonic() > deadline:
            raise UserError(f"{run.root}: its recorder (process {recorder}) did not answer within a minute; try again")
        if holder(run.store) is None:
            return analyse(run)
        time.sleep(0.1)
    details = run.root / "details.json"
    return from_json(run.report.read_text(), str(run.report)), details_from_json(details.read_text(), str(details))
