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
from dataclasses import dataclass, replace
from pathlib import Path

from scoring import Expected, Json
from stall import Stall, Told

FOLDER = Path(__file__).resolve().parent
TIME_OUT_S = 240.0
# What a program may leave behind when it is killed: time for torchrun to end its workers before the group is killed.
GRACE_S = 10.0
REPORT_S = 120.0
"""For the report of a run that was asked to end."""
LOOK_EVERY_S = 0.1
"""At the output of a run that is expected to hang."""


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
    stalled_s: float | None = None
    """Begin of its stall, on the clock of `told`; only of programs that are expected to hang."""
    told: tuple[Told, ...] = ()

    def told_after_s(self, expected: Expected) -> float | None:
        """From the begin of the stall to the first line with the right cause and ranks; null where none came."""
        right = [told.at_s for told in self.told if told.right(expected)]
        return right[0] - self.stalled_s if right and self.stalled_s is not None else None


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


def run(command: Sequence[str], folder: Path, time_out_s: float = TIME_OUT_S, stall: Stall | None = None) -> Outcome:
    """Runs a command in a session of its own; on time-out the whole session's process group is ended.

    With `stall` the command is asked to end, by SIGTERM to itself alone, as soon as that has seen enough.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            list(command), cwd=folder, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        exit_code: int | None
        try:
            exit_code = process.wait(time_out_s) if stall is None else follow(process, log.fileno(), stall, time_out_s)
        except subprocess.TimeoutExpired:
            exit_code = None
            end_group(process)
        except BaseException:
            end_group(process)
            raise
        log.seek(0)
        return Outcome(exit_code, time.monotonic() - began, log.read())


def follow(process: subprocess.Popen[bytes], log: int, stall: Stall, time_out_s: float) -> int:
    """Hands the lines of a process on as they come, and asks it to end when `stall` is over; its exit code.

    Raises TimeoutExpired, as `wait` does.
    """
    limit = time.monotonic() + time_out_s
    read, rest, asked = 0, b"", False
    while (code := process.poll()) is None:
        now = time.monotonic()
        if now >= limit:
            raise subprocess.TimeoutExpired(process.args, time_out_s)
        new = os.pread(log, 1 << 20, read)  # leaves the place where the process writes as it is
        read += len(new)
        *lines, rest = (rest + new).split(b"\n")
        for line in lines:
            stall.note(line.decode(errors="replace"), now)
        if stall.over(now) and not asked:
            asked, limit = True, now + REPORT_S
            process.terminate()
        time.sleep(LOOK_EVERY_S)
    return code


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
    """Runs a case under `rankscope run` and reads the report it writes; a hang is ended when it has been told."""
    stall = Stall() if case.expected.hangs else None
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as scratch:
        file, runs = Path(scratch) / "report.json", Path(scratch) / "runs"
        watch = [sys.executable, "-m", "rankscope", "run", "--no-dashboard"]
        watch += ["--runs-dir", str(runs), "--report-json", str(file), "--"]
        outcome = run([*watch, *case.command], case.folder, stall=stall)
        try:
            report = json.loads(file.read_text())
        except (OSError, ValueError):
            report = None
        if stall is None:
            return replace(outcome, report=report)
        begins = [begin for begin in (stall.begin_s, last_progress_s(runs)) if begin is not None]
        return replace(outcome, report=report, stalled_s=min(begins, default=None), told=tuple(stall.told))


def last_progress_s(runs: Path) -> float | None:
    """When the first rank of a folder's only run came to a stand, from its records; null where they do not say.

    This is before the time that rankscope's line about a stall gives, which is late by its way to the terminal.
    """
    for run_folder in runs.glob("*/"):
        command = [sys.executable, str(FOLDER / "last_progress.py"), str(run_folder)]
        printed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        return float(printed) if printed else None
    return None
