"""`rankscope prune`: old runs make room."""

from __future__ import annotations

import argparse
import shutil

from rankscope.base.errors import UserError
from rankscope.base.rundir import shared_ring_folder
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir, whole_number


class Prune(Command):
    """Delete all runs of a folder but the newest; runs that are going on and damaged ones stay."""

    name = "prune"
    example = "rankscope prune --keep 20"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--keep", type=whole_number(0), required=True, metavar="N", help="how many of the newest runs stay"
        )
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import history

        folder = runs_dir(args)
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder; name one with --runs-dir")
        ended = [kept for kept in history(folder) if kept.manifest is not None and kept.state != "running"]
        for kept in ended[: max(0, len(ended) - args.keep)]:
            # The manifest goes first: what is interrupted here is no run any more, not half a run.
            try:
                kept.run.manifest.unlink()
                shutil.rmtree(kept.run.root)
            except OSError as error:
                raise UserError(f"{kept.run.root}: cannot be deleted ({error.strerror})") from error
            shutil.rmtree(shared_ring_folder(kept.run), ignore_errors=True)
            print(f"deleted {kept.run.root}")
        print(f"{min(len(ended), args.keep)} of {len(ended)} runs stay in {folder}")
        return 0
