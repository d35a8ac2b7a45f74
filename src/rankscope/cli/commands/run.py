"""`rankscope run`: a command under observation, its alerts while it runs, its report at the end."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from rankscope import __version__
from rankscope.base.clock import now_ns
from rankscope.base.errors import UserError
from rankscope.base.manifest import Manifest, write_manifest
from rankscope.base.rundir import LEVELS, RunDir, default_runs_dir, shared_ring_folder
from rankscope.capture.config import parse_budget, with_file, Config
from rankscope.cli.command import Command
from rankscope.cli.launch import Alerts, Launch, observed_environment
from rankscope.cli.output import add_report_options, check_targets, gate, show, write_files
from rankscope.cli.session import analyse, save
from rankscope.views.html.page import render_html


class Run(Command):
    """Start a command under observation and say what makes it slow."""

    name = "run"
    example = "rankscope run -- torchrun --nproc-per-node 2 train.py"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--name", help="name of the run (default: its id)")
        parser.add_argument("--runs-dir", type=Path, help="where run folders are kept (default: ./rankscope-runs)")
        parser.add_argument("--port", type=int, help="port of the dashboard (not in this version)")
        parser.add_argument("--no-dashboard", action="store_true", help="serve no dashboard")
        parser.add_argument("--level", choices=LEVELS, help="how much is recorded (default: standard)")
        parser.add_argument("--budget", help="share of the step time that observation may take (default: 1%%)")
        parser.add_argument("--config", type=Path, metavar="FILE", help="a rankscope.toml")
        add_report_options(parser)
        parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND...", help="what to start")

    def run(self, args: argparse.Namespace) -> int:
        command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
        if not command:
            raise UserError("no command given; write it after `--`, for example: rankscope run -- python train.py")
        check_targets(args)
        config = _config(args)
        program = shutil.which(command[0])
        if program is None:
            missing = not os.path.exists(command[0])
            why = "there is no such program" if missing else "it is not executable"
            print(f"rankscope: cannot start {command[0]!r}: {why}; check the command after `--`", file=sys.stderr)
            return 127 if missing else 126
        run, rings, manifest = _create(args, command, config)
        environment = observed_environment(os.environ, run, rings, config, args.config)
        launch = Launch(run, command, environment)
        code = launch.run(Alerts(run))
        duration = (now_ns() - manifest.started_ns) / 1e9
        manifest = replace(
            manifest, finished=True, duration_s=duration, exit_code=launch.exit_code,
            recorder_restarts=launch.recorder_restarts,
        )  # fmt: skip
        return _report(args, run, manifest, rings, code)


def _config(args: argparse.Namespace) -> Config:
    config = with_file(Config(), args.config) if args.config else Config()
    if args.level:
        config = replace(config, level=args.level)
    if args.budget:
        config = replace(config, budget=parse_budget(args.budget, "--budget"))
    return config


def _create(args: argparse.Namespace, command: list[str], config: Config) -> tuple[RunDir, Path | None, Manifest]:
    """Make the run's folder (elsewhere, with a line, where this one cannot be written) and its ring folder."""
    id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    wanted = (args.runs_dir or default_runs_dir()).absolute()
    root = wanted / id
    try:
        root.mkdir(parents=True)
    except OSError as error:
        fallback = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rankscope" / "runs"
        root = fallback / id
        try:
            root.mkdir(parents=True)
        except OSError:
            raise UserError(
                f"{wanted}: cannot be written ({error.strerror}); give a folder with --runs-dir"
            ) from error
        print(f"rankscope: {wanted} cannot be written ({error.strerror}); this run is kept in {root}", file=sys.stderr)
    run = RunDir(root)
    run.rings.mkdir()
    rings: Path | None = shared_ring_folder(run)
    try:
        rings.mkdir(mode=0o700)  # type: ignore[union-attr]
    except OSError:
        rings = None
    manifest = Manifest(
        id=id, name=args.name or id, command=tuple(command), started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        started_ns=now_ns(), cwd=_cwd(), host=os.uname().nodename, cpus=len(os.sched_getaffinity(0)),
        level=config.level, budget=config.budget, version=__version__,
    )  # fmt: skip
    try:
        write_manifest(run, manifest)
    except OSError as error:
        raise UserError(f"{run.root}: cannot be written ({error.strerror}); free some space or use --runs-dir") from error
    return run, rings, manifest


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _report(args: argparse.Namespace, run: RunDir, manifest: Manifest, rings: Path | None, code: int) -> int:
    """Analyse, print, write. Whatever goes wrong here, the command's exit code stands."""
    try:
        write_manifest(run, manifest)
        report, details = analyse(run)
        print(file=sys.stderr)
        show(report, sys.stderr)
        try:
            save(run, report, details)
            page = run.root / "report.html"
            page.write_text(render_html(report, details), encoding="utf-8")
            print(f"rankscope: run {run.id}, HTML report in {page}", file=sys.stderr)
        except OSError as error:
            print(f"rankscope: the report could not be kept in {run.root} ({error.strerror})", file=sys.stderr)
        write_files(args, report, details)
        gated = gate(args, report)
    except (UserError, OSError) as error:
        print(f"rankscope: no complete report: {error}", file=sys.stderr)
        return code
    except Exception as error:  # noqa: BLE001
        if os.environ.get("RANKSCOPE_DEBUG"):
            raise
        print(f"rankscope: no report, internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return code
    finally:
        if rings is not None:
            shutil.rmtree(rings, ignore_errors=True)
    return gated if code == 0 and gated else code
