"""`rankscope stacks`: what every rank does now."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rankscope.base.errors import UserError
from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir

if TYPE_CHECKING:
    from rankscope.views.stacks import RankStack


class Stacks(Command):
    """Show what every rank is doing: stacks, last collective, time without progress."""

    name = "stacks"
    example = "rankscope stacks last"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "what", nargs="+", metavar="RUN|PID", help="a run, or processes that rankscope did not start"
        )
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import find_run
        from rankscope.cli.output import layout
        from rankscope.views.stacks import render_stacks

        if all(word.isdigit() for word in args.what):
            found = _from_outside([int(word) for word in args.what])
        elif len(args.what) == 1:
            found = _of_run(find_run(args.what[0], runs_dir(args)))
        else:
            raise UserError("give one run, or the numbers of processes")
        sys.stdout.write(render_stacks(found, layout(sys.stdout)[0]))
        return 0


def _from_outside(pids: list[int]) -> list[RankStack]:
    from rankscope.cli.processes import local_ranks, stack_from_outside
    from rankscope.views.stacks import RankStack

    ranks = {rank: pid for pid in pids for rank, pid in local_ranks(pid).items()}
    found, refused = [], []
    for rank, pid in sorted(ranks.items()):
        try:
            state, frames = stack_from_outside(pid)
        except UserError as error:
            refused.append(str(error))
            state, frames = f"process {pid}", ()
        found.append(RankStack(rank, state, None, "", frames))
    for line in refused:
        print(f"rankscope: {line}", file=sys.stderr)
    return found


def _of_run(run: RunDir) -> list[RankStack]:
    """From the records of a run; of one that is going on, after its recorder has brought them into the store."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.tables import load
    from rankscope.base.manifest import read_manifest
    from rankscope.cli.commands.diagnose import diagnose
    from rankscope.cli.session import open_when_free
    from rankscope.cli.standings import rank_stacks
    from rankscope.report.attempts import last_part

    diagnose(run)
    with open_when_free(run) as store:
        return rank_stacks(Facts(load(store, last_part(read_manifest(run.root)))))
