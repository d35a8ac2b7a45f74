"""`rankscope run`: a command under observation, its alerts while it runs, its report at the end."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rankscope.base.errors import UserError
from rankscope.base.manifest import Manifest, write_manifest
from rankscope.base.rundir import LEVELS, ON_NAN, RunDir
from rankscope.capture.config import DEFAULT_FILE, Config, parse_budget, with_file
from rankscope.cli.command import Command
from rankscope.cli.options import add_report_options, add_runs_dir, check_targets, runs_dir, whole_number
from rankscope.cli.restarts import REPORT_ONLY, Policy, add_restart_options, restart_policy


class Run(Command):
    """Start a command under observation and say what makes it slow."""

    name = "run"
    example = "rankscope run -- torchrun --nproc-per-node 2 train.py"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--name", help="name of the run (default: its id)")
        add_runs_dir(parser)
        parser.add_argument("--port", type=whole_number(1, 65535), help="port of the dashboard (not in this version)")
        parser.add_argument("--no-dashboard", action="store_true", help="serve no dashboard (not in this version)")
        parser.add_argument("--level", choices=LEVELS, help="how much is recorded (default: standard)")
        parser.add_argument("--budget", help="share of the step time that observation should keep to (default: 1%%)")
        parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ./rankscope.toml)")
        parser.add_argument(
            "--on-nan", choices=ON_NAN,
            help="when a loss is not finite: say so (default); also save the batch (`snapshot`), and end the run "
            "(`stop`) or leave the optimizer's step out (`skip`)",
        )  # fmt: skip
        add_report_options(parser)
        add_restart_options(parser)
        parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND...", help="what to start")

    def run(self, args: argparse.Namespace) -> int:
        command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
        if not command:
            raise UserError("no command given; write it after `--`, for example: rankscope run -- python train.py")
        check_targets(args)
        return run_observed(args, command, _config(args), restart_policy(args))


def run_observed(args: argparse.Namespace, command: list[str], config: Config, policy: Policy = REPORT_ONLY) -> int:
    """Run the command to its end and report; the exit code for the shell."""
    from rankscope.cli.attempts import Attempts
    from rankscope.cli.launch import NOT_EXECUTABLE, NOT_FOUND, CannotStart, observed_environment
    from rankscope.cli.new_run import NoPlace, create

    if shutil.which(command[0]) is None:
        missing = not os.path.exists(command[0])
        why = "there is no such program" if missing else "it is not executable"
        return _cannot_start(command[0], why, NOT_FOUND if missing else NOT_EXECUTABLE)
    try:
        new = create(runs_dir(args), args.name, command, config)
    except NoPlace as error:
        print(f"rankscope: the command runs unobserved: {error}", file=sys.stderr)
        new = None
    try:
        if new is None:
            return Attempts(None, command, dict(os.environ), policy).run()
        environment = observed_environment(os.environ, new.run, new.rings, config, args.config)
        attempts = Attempts(new, command, environment, policy)
        code = attempts.run()
        return _report(args, new.run, attempts.manifest(new.manifest), code)
    except CannotStart as error:
        if new is not None:
            shutil.rmtree(new.run.root, ignore_errors=True)
        return _cannot_start(command[0], str(error), error.code)
    finally:
        if new is not None and new.rings is not None:
            shutil.rmtree(new.rings, ignore_errors=True)


def _cannot_start(program: str, why: str, code: int) -> int:
    """Say why in one line; the exit code of a shell in that case."""
    print(f"rankscope: cannot start {program!r}: {why}; check the command after `--`", file=sys.stderr)
    return code


def _config(args: argparse.Namespace) -> Config:
    """What is to be observed: options come before the file, by default the working folder's. Raises UserError."""
    if args.config is None and DEFAULT_FILE.is_file():
        args.config = DEFAULT_FILE
    config = with_file(Config(), args.config) if args.config else Config()
    if args.level:
        config = replace(config, level=args.level)
    if getattr(args, "on_nan", None):
        config = replace(config, on_nan=args.on_nan)
    if args.budget:
        config = replace(config, budget=parse_budget(args.budget, "--budget"))
    return config


def _report(args: argparse.Namespace, run: RunDir, manifest: Manifest, code: int) -> int:
    """Analyse, print, write. Whatever goes wrong here, the command's exit code stands."""
    from rankscope.cli.output import gate, keep, show, write_files
    from rankscope.cli.progress import working
    from rankscope.cli.session import analyse

    handlers = {number: signal.signal(number, _give_up) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with working("analysing the records"):
            try:
                write_manifest(run, manifest)
            except OSError as error:
                print(f"rankscope: {run.manifest}: cannot be written ({error.strerror})", file=sys.stderr)
            report, details = analyse(run, manifest)
        print(file=sys.stderr)
        show(report, sys.stderr)
        keep(run, report, details)
        write_files(args, report, details)
        return gate(args, report) or code if code == 0 else code
    except (UserError, OSError) as error:
        print(f"rankscope: no complete report: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"rankscope: interrupted; `rankscope diagnose {run.root}` makes the report", file=sys.stderr)
    except Exception as error:  # the command has done its work: its exit code must come through
        if os.environ.get("RANKSCOPE_DEBUG"):
            raise
        print(f"rankscope: no report, internal error: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code


def _give_up(number: int, frame: FrameType | None) -> None:
    """A signal during the analysis: leave as a shell would say it."""
    raise SystemExit(128 + number)
