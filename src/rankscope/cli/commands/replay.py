"""`rankscope replay`: how to load the batch behind a loss that was not finite."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir, whole_number

NAME = re.compile(r"rank(\d+)-step(\d+)\.pt")

HOW = """\
import random
import torch

saved = torch.load({path!r})
batch = saved["batch"]                       # key -> tensor, as the DataLoader gave it
torch.random.set_rng_state(saved["torch_rng"])
random.setstate(saved["python_rng"])
# with numpy: numpy.random.set_state(saved["numpy_rng"])
# then: build the model, load the checkpoint before step {step}, and call it on this batch under
# torch.autograd.set_detect_anomaly(True)"""


class Replay(Command):
    """Print how to load a batch that `--on-nan snapshot` has saved."""

    name = "replay"
    example = "rankscope replay last --step 812"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run_id", metavar="RUN", help="its id, the unique start of it, name, folder, or `last`")
        parser.add_argument("--step", type=whole_number(0), metavar="N", help="of several snapshots, the step")
        parser.add_argument("--rank", type=whole_number(0), metavar="R", help="of several ranks, which one")
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import find_run

        run = find_run(args.run_id, runs_dir(args))
        chosen = [
            (step, rank, path)
            for step, rank, path in _snapshots(run)
            if args.step in (None, step) and args.rank in (None, rank)
        ]
        if not chosen:
            raise UserError(_nothing(run, args))
        for step, rank, path in chosen:
            print(f"# rank {rank}, step {step}: {path}")
        step, _, path = chosen[0]
        print(HOW.format(path=str(path.absolute()), step=step))
        return 0


def _snapshots(run: RunDir) -> list[tuple[int, int, Path]]:
    """(step, rank, file), the first step first."""
    found = []
    for path in run.snapshots.glob("rank*-step*.pt"):
        match = NAME.fullmatch(path.name)
        if match:
            found.append((int(match[2]), int(match[1]), path))
    return sorted(found)


def _nothing(run: RunDir, args: argparse.Namespace) -> str:
    there = _snapshots(run)
    if not there:
        return f"{run.root}: no batch was saved; start the run with `rankscope run --on-nan snapshot -- ...`"
    listed = ", ".join(f"step {step} of rank {rank}" for step, rank, _ in there[:8])
    return f"{run.root}: there is no such snapshot; there are {listed}"
