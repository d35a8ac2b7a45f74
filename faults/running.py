"""Starts fault programs, bare or observed by rankscope, and reads what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scoring import Expected, Json

FOLDER = Path(__file__).resolve().parent
TIME_OUT_S = 240.0
# What a program may leave behind when it is killed: time for torchrun to end its workers before the group is killed.
GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """A folder with a program and what is expected of it; `script` is train.py or its repaired twin."""

    key: str
    folder: Path
    script: str
    expected: Expected

    @property
    def command(self) -> list[str]:
        return [self.script if part == "train.py" else part for part in self.expected.command]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended; `exit_code` is null where it ran out of time, `report` where none was written."""

    exit_code: int | None
    seconds: float
    output: str
    report: Json | None = None


def load_cases(folder: Path = FOLDER) -> dict[str, Case]:
    """All cases by the name of their folder, in order; ValueError names a broken expected.json."""
    cases = {}
    for path in sorted(folder.glob("*/expected.json")):
        try:
            expected = Expected.from_json(json.loads(path.read_text()))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        cases[path.parent.name] = Case(path.parent.name, path.parent, "train.py", expected)
    return cases


def cuda_missing() -> bool:
    """Asked of a child: torch is not imported here."""
    probe = [sys.executable, "-c", "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"]
    return subprocess.run(probe, check=False, capture_output=True).returncode != 0


def environment() -> dict[str, str]:
    """This interpreter's scripts first (`python`, `torchrun`), and none of the caller's thread settings."""
    scripts = str(Path(sys.executable).parent)
    kept = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**kept, "PATH": scripts + os.pathsep + os.environ.get("PATH", "")}


def run(command: Sequence[str], folder: Path, time_out_s: float = TIME_OUT_S) -> Outcome:
    """Runs a command in a session of its own; on time-out the whole session's process group is ended."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            list(command), cwd=folder, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        exit_code: int | None
        try:
            exit_code = process.wait(time_out_s)
        except subprocess.TimeoutExpired:
            exit_code = None
            end_group(process)
        except BaseException:
            end_group(process)
            raise
        log.seek(0)
        return Outcome(exit_code, time.monotonic() - began, log.read())


def end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run_bare(case: Case) -> Outcome:
    return run(case.command, case.folder)


def run_observed(case: Case) -> Outcome:
    """Runs a case under `rankscope run` and reads the report it writes."""
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as scratch:
        file = Path(scratch) / "report.json"
        watch = [sys.executable, "-m", "rankscope", "run", "--no-dashboard"]
        watch += ["--runs-dir", str(Path(scratch) / "runs"), "--report-json", str(file), "--"]
        outcome = run([*watch, *case.command], case.folder)
        try:
            report = json.loads(file.read_text())
        except (OSError, ValueError):
            report = None
        return Outcome(outcome.exit_code, outcome.seconds, outcome.output, report)
