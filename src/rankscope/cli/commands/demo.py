"""`rankscope demo`: a training run with a hidden fault, and what is found."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.capture.config import Config
from rankscope.cli.command import Command
from rankscope.cli.commands.run import run_observed
from rankscope.cli.options import add_report_options, add_runs_dir, check_targets, runs_dir

FAULTS = {
    "slow-data-loading": "rank 1 decodes its images in plain Python, in `decompress`",
    "slow-code": "both ranks count words after each step in a slow loop, in `rare_words`",
    "gc-pause": "rank 1 keeps so many linked objects alive that garbage collection stops it",
}
"""Fault -> what is hidden in `demo_programs/FAULT.py`."""


class Demo(Command):
    """Train a small model on two ranks with a hidden fault, under observation, and show what is found."""

    name = "demo"
    example = "rankscope demo slow-code"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "fault", nargs="?", default="slow-data-loading", choices=FAULTS, metavar="FAULT",
            help=f"what to hide: {', '.join(FAULTS)} (default: the first)",
        )  # fmt: skip
        add_runs_dir(parser)
        add_report_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        if importlib.util.find_spec("torch") is None:
            raise UserError(f"the demo trains with torch, which {sys.executable} has not; `pip install torch` first")
        check_targets(args)
        program = _copy(args.fault, runs_dir(args))
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)
        ]  # fmt: skip
        print(f"rankscope: training on two ranks with a hidden fault: {program}", file=sys.stderr)
        args.name, args.config = f"demo-{args.fault}", None
        code = run_observed(args, command, Config())
        print(f"rankscope: what was hidden ({args.fault}): {FAULTS[args.fault]}", file=sys.stderr)
        return code


def _copy(fault: str, folder: Path) -> Path:
    """The program where the user can read and change it: what lies inside this package is never observed."""
    name = f"{fault.replace('-', '_')}.py"
    target = folder / "demo" / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(__file__).parents[1] / "demo_programs" / name, target)
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror}); give a folder with --runs-dir") from error
    return target
