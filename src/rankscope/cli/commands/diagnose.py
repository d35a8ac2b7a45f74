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
    """Say what is wrong: with a run (finished, running or killed), or from files of other tools.

    Files: torch.profiler traces, CUDA memory snapshots, Flight Recorder dumps, logs, stack dumps, TensorBoard events,
    Nsight Systems exports, execution traces, compile logs, operation tables; folders and archives of them, any mix.
    """

    name = "diagnose"
    example = "rankscope diagnose traces/ nccl_dumps.tar.gz train.log --report-html report.html"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", nargs="+", help="a run (folder, id, name, `last`), or files and folders of files")
        add_runs_dir(parser)
        parser.add_argument("--baseline", metavar="RUN", help="also compare with this run (folder, id, report.json)")
        parser.add_argument(
            "--world-size",
            type=whole_number(1),
            metavar="N",
            help="ranks of the job, where the files do not say (a run of rankscope knows its own)",
        )
        add_report_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import report_of_text
        from rankscope.cli.output import gate, layout, show, write_files
        from rankscope.views.tables import render_compare

        check_targets(args)
        baseline = report_of_text(args.baseline, runs_dir(args)) if args.baseline else None
        report, details = _report(args)
        useless = bool(report.files) and not any(file.used for file in report.files) and not report.run.steps
        if not useless or len(report.files) > 1:
            show(report, sys.stdout)
        if baseline is not None:
            sys.stdout.write("\n" + render_compare(baseline, report, *layout(sys.stdout)))
        write_files(args, report, details)
        if useless:
            first = report.files[0]
            why = f"no file could be used; {first.path}: {first.why_not}"
            raise UserError(f"{why}; `rankscope diagnose --help` lists what can be read")
        return gate(args, report)


def _report(args: argparse.Namespace) -> tuple[Report, Details]:
    """Of a run, of files, or of a run and files that belong to it."""
    from rankscope.cli.history import find_run
    from rankscope.cli.inputs import sort_out
    from rankscope.report.details import Details

    inputs = sort_out(args.path)
    runs: tuple[RunDir, ...] = inputs.runs if inputs is not None else ()
    files = inputs.files if inputs is not None else ()
    if inputs is None:
        missing = next(text for text in args.path if not Path(text).exists())
        if len(Path(missing).parts) > 1 or Path(missing).suffix:
            raise UserError(f"{missing}: does not exist; check the path, or see `rankscope runs` for the runs here")
        if len(args.path) > 1:
            raise UserError(
                f"{missing}: is no file and no folder; of runs by name give one at a time, two are compared by "
                "`rankscope compare A B`"
            )
        runs = (find_run(missing, runs_dir(args)),)
    if len(runs) > 1:
        raise UserError(
            f"{runs[0].root} and {runs[1].root} are two runs: give one at a time; `rankscope compare A B` compares two"
        )
    if not runs and not files:
        raise UserError(f"{args.path[0]}: there is no file in it")
    observed = diagnose(runs[0]) if runs else None
    if not files:
        assert observed is not None
        if args.world_size is not None:
            print("rankscope: --world-size is not needed: a run of rankscope knows its ranks", file=sys.stderr)
        return observed
    report = _with_files(args, files, observed[0] if observed else None)
    return report, observed[1] if observed else Details()


def _with_files(args: argparse.Namespace, files: tuple[Path, ...], observed: Report | None) -> Report:
    from rankscope.cli.importing import read_all
    from rankscope.cli.progress import counting, working
    from rankscope.report.imported import imported_report

    with counting("reading files", len(files)) as told:
        inputs = read_all(files, told)
    with working("examining what was read"):
        return imported_report(Path(args.path[0]).name, inputs, args.world_size, observed)


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
