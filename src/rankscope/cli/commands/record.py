"""`rankscope record`: the process that watches a run; started by `run` and by `rankscope.start()`."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.base.manifest import read_manifest
from rankscope.base.rundir import RunDir
from rankscope.cli.command import Command

if TYPE_CHECKING:
    from rankscope.cli.recording import Recording

TICK_S = 0.25
"""Between two visits to the rings, which hold some 5 s of the busiest programs."""
ORPHAN_IDLE_NS = 5_000_000_000
"""Without a supervisor: how long to wait for another process after the last observed one has ended."""
NOTHING_SEEN_NS = 60_000_000_000
"""Without a supervisor: how long to wait for a first process to be observed."""
DAEMON_NS = 2_000_000_000
"""Ranks may outlive their launcher by a moment; daemons that a script left behind are not waited for."""
NICENESS = 10
"""The ranks come first: rings hold seconds of records."""


class Record(Command):
    """Record a run that is going on, until its processes have ended (used by other commands)."""

    name = "record"
    example = "rankscope record rankscope-runs/20260101-120000-ab12cd"
    internal = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path)
        parser.add_argument("--supervised", action="store_true", help="end when standard input says so")

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.recording import Recording

        logging.basicConfig(level=logging.INFO, stream=sys.stderr)  # into the run's recorder.log
        logging.getLogger("rankscope").setLevel(logging.DEBUG)
        os.nice(NICENESS)
        run = RunDir(args.run.absolute())
        read_manifest(run.root)
        with Recording(run, supervised=args.supervised) as recording:
            if not (args.supervised and _until_told(recording)):
                recording.supervised = False
                _until_all_have_ended(recording)
        return 0


def _until_told(recording: Recording) -> bool:
    """Record until our supervisor says `finish`; False where the supervisor is gone and the ranks may go on."""
    finishing_since = 0
    while True:
        now = recording.tick()
        ready, _, _ = select.select([sys.stdin, *recording.handles], [], [], TICK_S)
        if sys.stdin in ready and not finishing_since:
            if not sys.stdin.readline():
                return False
            finishing_since = now
        if finishing_since and (not recording.alive or now - finishing_since > DAEMON_NS):
            return True


def _until_all_have_ended(recording: Recording) -> None:
    """Record until no observed process is left and none comes any more."""
    idle_since = 0
    while True:
        now = recording.tick()
        if recording.alive or not idle_since:
            idle_since = now
        if now - idle_since > (ORPHAN_IDLE_NS if recording.seen else NOTHING_SEEN_NS):
            return
        select.select(recording.handles, [], [], TICK_S)
