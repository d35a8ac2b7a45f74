"""`rankscope record`: the process that watches a run; started by `run` and by `rankscope.start()`."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from pathlib import Path

from rankscope.base.clock import now_ns
from rankscope.base.guard import guard
from rankscope.base.manifest import read_manifest
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.cli.command import Command
from rankscope.cli.session import acknowledged, opened, report_of, save
from rankscope.collector.collector import Collector
from rankscope.recorder.recorder import Recorder
from rankscope.recorder.source_files import keep_sources
from rankscope.store.sql_store import SqlStore
from rankscope.wire.spool import Spool

TICK_S = 0.1
COMMIT_EVERY_NS = 5_000_000_000
FIRST_LOOK_NS = 20_000_000_000
NICENESS = 10
"""The ranks come first: rings hold seconds of records."""


class Record(Command):
    """Record a run that is going on, until its processes have ended (used by other commands)."""

    name = "record"
    example = "rankscope record rankscope-runs/20260101-120000-ab12"
    internal = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path)
        parser.add_argument("--supervised", action="store_true", help="end when standard input says so")

    def run(self, args: argparse.Namespace) -> int:
        os.nice(NICENESS)
        run = RunDir(args.run.absolute())
        manifest = read_manifest(run.root)
        with opened(run) as store:
            spool = Spool(run.spool)
            collector = Collector(store)
            collector.drain(spool)
            recorder = Recorder(ring_folders(run), spool, resume=acknowledged(store))
            _Loop(run, recorder, collector, spool, store, supervised=args.supervised).go()
            while not recorder.finish() and recorder.alive == 0:
                time.sleep(TICK_S)  # a full disk: what is held waits for room
                break
            collector.drain(spool)
            with guard("keeping source files"):
                keep_sources(run.sources, store.query("SELECT DISTINCT text FROM payloads WHERE kind = 1"))
        del manifest
        return 0


class _Loop:
    def __init__(
        self, run: RunDir, recorder: Recorder, collector: Collector, spool: Spool, store: SqlStore, *, supervised: bool
    ) -> None:
        self.run, self.recorder, self.collector, self.spool, self.store = run, recorder, collector, spool, store
        self.supervised = supervised
        self.told: set[tuple[str, tuple[int, ...]]] = set()
        self.next_commit = now_ns() + COMMIT_EVERY_NS
        self.next_look = now_ns() + FIRST_LOOK_NS
        self.look_after = FIRST_LOOK_NS

    def go(self) -> None:
        """Until told to finish and no observed process is left; alone: until all observed processes have ended."""
        finishing_since = 0
        idle_since = now_ns()
        orphan = False
        while True:
            self.recorder.tick()
            now = now_ns()
            if now >= self.next_commit:
                self.next_commit = now + COMMIT_EVERY_NS
                self.collector.drain(self.spool)
                self.recorder.close_ended()
            if now >= self.next_look or self._asked():
                self._look(now)
            if self.recorder.alive:
                idle_since = now
            if self.supervised and not orphan:
                word = self._word()
                if word == "finish":
                    finishing_since = finishing_since or now
                elif word == "":
                    orphan = True  # whoever started us is gone; the ranks may go on
                # Ranks may outlive their launcher by a moment; daemons that a script left behind are not waited for.
                if finishing_since and (not self.recorder.alive or now - finishing_since > 2_000_000_000):
                    return
            elif now - idle_since > (5_000_000_000 if self.recorder.seen else 60_000_000_000):
                return

    def _word(self) -> str | None:
        """A line from standard input within one tick; "" at its end, None for silence."""
        ready, _, _ = select.select([sys.stdin], [], [], TICK_S)
        return sys.stdin.readline().strip() or "" if ready else None

    def _asked(self) -> bool:
        if not self.supervised:
            time.sleep(TICK_S)
        return (self.run.root / "report.request").exists()

    def _look(self, now: int) -> None:
        """Analyse what is there so far; tell each new finding once."""
        with guard("looking at the run so far"):
            self.recorder.flush()
            self.collector.drain(self.spool)
            report, details = report_of(self.store, read_manifest(self.run.root), self.run)
            save(self.run, report, details)
            with self.run.alerts.open("a", encoding="utf-8") as file:
                for finding in report.findings:
                    key = (finding.cause, finding.ranks)
                    if finding.severity != "info" and key not in self.told:
                        self.told.add(key)
                        file.write(json.dumps({"finding": finding.id, "step": report.run.steps}) + "\n")
        (self.run.root / "report.request").unlink(missing_ok=True)
        # Ever rarer: an analysis costs time that the ranks could use.
        self.look_after = min(self.look_after * 2, 300_000_000_000)
        self.next_look = now_ns() + max(self.look_after, 50 * (now_ns() - now))
