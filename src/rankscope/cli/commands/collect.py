"""`rankscope collect`: frames of a run that is going on into its store, and a look at it; started by its recorder."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command

if TYPE_CHECKING:
    from rankscope.analysis.facts import Facts
    from rankscope.report.report import Report


class Collect(Command):
    """Bring what was recorded so far into the run's store (used by other commands)."""

    name = "collect"
    example = "rankscope collect rankscope-runs/20260101-120000-ab12cd --report"
    internal = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path)
        parser.add_argument("--report", action="store_true", help="also analyse, save the report and tell new findings")

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.analysis.facts import Facts
        from rankscope.analysis.standing import hangs
        from rankscope.analysis.tables import load
        from rankscope.base.manifest import read_manifest
        from rankscope.cli.session import drain, keep_named_sources, open_when_free, report_of, save, write_text
        from rankscope.report.attempts import last_part
        from rankscope.report.report import to_json

        logging.basicConfig(level=logging.INFO, stream=sys.stderr)  # into the run's recorder.log
        run = RunDir(args.run.absolute())
        try:
            with open_when_free(run) as store:
                drain(run, store)
                keep_named_sources(run, store)
                if args.report:
                    manifest = read_manifest(run.root)
                    facts = Facts(load(store, last_part(manifest)))
                    number = max(1, len(manifest.attempts))
                    goes_on = not manifest.attempts or manifest.attempts[-1].ended_ns is None
                    if goes_on:  # first: whoever waits for a reason sees the facts while it is looked for
                        tell_stall(run, facts)
                    report, details = report_of(facts, manifest, run, store)
                    save(run, report, details)
                    if not goes_on:
                        write_text(run.attempt_report(number), to_json(report))
                    tell(run, report, hangs=goes_on and hangs(facts), attempt=number)
        finally:
            if args.report:
                run.request.unlink(missing_ok=True)
        return 0


def tell_stall(run: RunDir, facts: Facts) -> None:
    """Write what the ranks do where they make no progress, for whoever shows alerts."""
    from rankscope.analysis.standing import worth_telling
    from rankscope.cli.standings import rank_stacks
    from rankscope.views.stacks import render_stall

    if worth_telling(facts):
        lines = render_stall(rank_stacks(facts), facts.all_steps, 100)
        with run.alerts.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stall": lines}) + "\n")


def tell(run: RunDir, report: Report, *, hangs: bool = False, attempt: int = 1) -> None:
    """Write each finding that has not been told of this attempt before, for whoever shows alerts.

    `hangs`: no rank makes progress any more; a failure is then the reason of a hang. One that was told before it was
    is written again, without the finding's id: there is nothing new to show.
    """
    told: dict[tuple[str, tuple[int, ...]], bool] = {}
    if run.alerts.exists():
        for line in run.alerts.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "cause" in entry and entry.get("attempt", 1) == attempt:
                told[entry["cause"], tuple(entry["ranks"])] = entry.get("hang", False)
    with run.alerts.open("a", encoding="utf-8") as file:
        for finding in report.findings:
            before = told.get((finding.cause, finding.ranks))
            hang = hangs and finding.kind == "failure"
            if finding.severity == "info" or before or (before is not None and not hang):
                continue
            entry = {"cause": finding.cause, "ranks": finding.ranks, "step": report.run.steps, "hang": hang}
            id = {"finding": finding.id} if before is None else {}
            file.write(json.dumps({**id, **entry, "attempt": attempt}) + "\n")
