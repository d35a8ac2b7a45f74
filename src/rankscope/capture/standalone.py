"""Observation without `rankscope run`: the program itself makes the run's folder and starts a recorder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

from rankscope.base.manifest import new_manifest, write_manifest
from rankscope.base.own_command import own_command, own_environment
from rankscope.base.process_stat import process_stat
from rankscope.base.rundir import ENV_RUN_DIR, RunDir, default_runs_dir, shared_ring_folder
from rankscope.capture.config import Config

_run: RunDir | None = None
_recorder: subprocess.Popen[bytes] | None = None
"""Nobody waits for it; without a reference Python would warn of that in the user's process."""


def run_folder() -> str | None:
    """The folder of the run that this process belongs to."""
    if _run is not None:
        return str(_run.root)
    return os.environ.get(ENV_RUN_DIR)


def begin(config: Config, name: str | None) -> Config:
    """Create the run's folder (the first rank of a launch on this node does) and start the recorder."""
    global _run  # noqa: PLW0603  one a process
    root = default_runs_dir().absolute() / _launch_id()
    _run = run = RunDir(root)
    rings = shared_ring_folder(run)
    root.parent.mkdir(parents=True, exist_ok=True)
    try:
        root.mkdir()
        mine = True
    except FileExistsError:
        mine = False
    for folder in (rings, run.rings):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
    if mine:
        command = [sys.executable, *sys.argv]
        write_manifest(run, new_manifest(run.id, name, command, config.level, config.budget))
        _start_recorder(run)
        print(f"rankscope: recording into {root}; `rankscope diagnose {root}` makes the report", file=sys.stderr)
    return replace(config, ring_folders=(str(rings), str(run.rings)))


def _launch_id() -> str:
    """The same for all ranks of one launch on this node, new for each launch."""
    if "LOCAL_RANK" in os.environ:
        parent = os.getppid()
        return f"run-{parent}-{process_stat(parent).start_ticks}"
    return f"run-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"



def _start_recorder(run: RunDir) -> None:
    global _recorder  # noqa: PLW0603  one a process
    with run.recorder_log.open("ab") as log:
        _recorder = subprocess.Popen(
            own_command("record", str(run.root)),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own_environment(), start_new_session=True,
        )  # fmt: skip


def end() -> None:
    """Forget the run; its recorder ends by itself when the observed processes have ended."""
    global _run  # noqa: PLW0603  one a process
    _run = None
