"""`rankscope stacks`: what every rank does now."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
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
    from rankscope.cli.processes import find_processes, look_at

    return look_at(find_processes(pids))


def _of_run(run: RunDir) -> list[RankStack]:
    """From the records of a run; of one that is going on, after its recorder has brought them into the store, and with
    a look from outside at ranks that cannot be sampled from inside."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.standing import silent
    from rankscope.analysis.tables import load
    from rankscope.base.manifest import read_manifest
    from rankscope.cli.commands.diagnose import diagnose
    from rankscope.cli.processes import Found, alive, look_at
    from rankscope.cli.session import open_when_free
    from rankscope.cli.standings import rank_stacks
    from rankscope.report.attempts import last_part

    diagnose(run)
    with open_when_free(run) as store:
        facts = Facts(load(store, last_part(read_manifest(run.root))))
    told = rank_stacks(facts)
    here = alive(run)
    wanted = [p for p in range(facts.size) if facts.ranks[p].pid in here and silent(facts, p)]
    if wanted:
        seen = look_at([Found(facts.ranks[p].pid, facts.ranks[p].rank) for p in wanted])
        for position, now in zip(wanted, seen, strict=True):
            if now.frames or not told[position].frames:
                told[position] = replace(
                    told[position], state=now.state, waits=False, frames=now.frames, native=now.native,
                    why_no_stack=now.why_no_stack,
                )  # fmt: skip
    return told
