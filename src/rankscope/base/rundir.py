"""Where the files of one run lie: the layout that capture, recorder, store and CLI share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ENV_RUN_DIR = "RANKSCOPE_RUN_DIR"
ENV_RING_DIR = "RANKSCOPE_RING_DIR"
ENV_LEVEL = "RANKSCOPE_LEVEL"
ENV_BUDGET = "RANKSCOPE_BUDGET"
ENV_CONFIG = "RANKSCOPE_CONFIG"
ENV_ON_NAN = "RANKSCOPE_ON_NAN"
ENV_OFF = "RANKSCOPE_OFF"

LEVELS = ("light", "standard", "deep")
ON_NAN = ("report", "snapshot", "stop", "skip")
"""What is done about a loss or a gradient that is not finite."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The folder of one run. Only names; nothing is created here."""

    root: Path

    @property
    def id(self) -> str:
        return self.root.name

    @property
    def manifest(self) -> Path:
        """`run.json`: command, name, times, exit code. Its presence makes a folder a run."""
        return self.root / "run.json"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def spool(self) -> Path:
        """Frames that the store has not acknowledged yet."""
        return self.root / "spool"

    @property
    def rings(self) -> Path:
        """Ring files when /dev/shm has no room."""
        return self.root / "rings"

    @property
    def recorder_log(self) -> Path:
        return self.root / "recorder.log"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    def attempt_report(self, number: int) -> Path:
        """The report of an attempt that has ended, where another one followed."""
        return self.root / f"attempt-{number}.report.json"

    @property
    def alerts(self) -> Path:
        return self.root / "alerts.jsonl"

    @property
    def request(self) -> Path:
        """There while `rankscope diagnose` waits for the recorder's report of a run that is going on."""
        return self.root / "report.request"

    @property
    def snapshots(self) -> Path:
        """Batches behind losses that were not finite, with the state of the random generators."""
        return self.root / "snapshots"

    @property
    def stop(self) -> Path:
        """Written by a rank that wants the run ended (`--on-nan stop`): why, in one line."""
        return self.root / "stop"

    @property
    def sources(self) -> Path:
        """Copies of the user's source files that samples point to, so that a report can quote them later."""
        return self.root / "sources"


def kept_source(folder: Path, file: str) -> Path:
    """Where in a run's folder of sources the copy of a source file lies."""
    import hashlib  # it loads OpenSSL: 10 ms that a training process need not pay

    return folder / f"{hashlib.sha256(file.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}-{Path(file).name}"


def default_runs_dir() -> Path:
    """`$RANKSCOPE_RUNS_DIR`, else `./rankscope-runs`."""
    return Path(os.environ.get("RANKSCOPE_RUNS_DIR") or "rankscope-runs")


def ring_folders(run: RunDir) -> list[Path]:
    """Every folder in which a process of this run may have left its ring."""
    return [shared_ring_folder(run), run.rings]


def shared_ring_folder(run: RunDir) -> Path:
    """Shared memory: writing a record never waits for a disk."""
    return Path("/dev/shm") / f"rankscope-{run.id}"


def working_folder() -> str:
    """The current working directory; "" where it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""
