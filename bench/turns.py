"""Two jobs that train in turn: one runs while every process of the other one is stopped.

On a machine whose speed drifts by several percent within a minute, two runs one after the other tell nothing about a
difference of one percent; two jobs that take turns each second see the same machine.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TURN_S = 0.5
TURN_STEPS = 10
"""A turn lasts `TURN_S`, or so many steps if that is longer."""
SETTLING_NS = 100_000_000
"""After its turn has begun a job refills the caches; what it does until then does not count."""
FEWEST_STEPS = 4
READY_S = 90.0


class Job:
    """One command that runs bench/train.py, and what its ranks note in OUT.<rank>."""

    def __init__(self, command: Sequence[str], out: Path, ranks: int = 2) -> None:
        self._out = out
        self._ranks = ranks
        self._log = out.with_suffix(".log").open("wb")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, env=environment, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )
        self._stopped: list[int] = []

    def steps(self, rank: int) -> NDArray[np.int64]:
        """int64 [steps, 2]: when each step ended (monotonic ns) and the CPU time of the process until then."""
        file = self._out.with_suffix(f".{rank}")
        if not file.exists() or file.stat().st_size == 0:
            return np.empty((0, 2), np.int64)
        notes = np.memmap(file, np.int64, "r").reshape(-1, 2)
        return np.array(notes[: int(np.searchsorted(notes[:, 0] == 0, True))])

    def wait_until_warm(self, steps: int) -> None:
        deadline = time.monotonic() + READY_S
        while any(len(self.steps(rank)) < steps for rank in range(self._ranks)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._out.with_suffix(".log").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self._process.args}\ndoes not train:\n{said}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Hold all its processes; it is as if they slept."""
        self._stopped = _family(self._process.pid)
        for pid in self._stopped:
            _send(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self._stopped:
            _send(pid, signal.SIGCONT)

    def kill(self) -> None:
        for pid in _family(self._process.pid):
            _send(pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one job: median step time and mean CPU time of a step, in ns, mean of the ranks."""

    step: float
    cpu: float


def take_turns(
    commands: Sequence[tuple[Sequence[str], Path]], seconds: float, warm_up: int, step_ms: float
) -> list[list[Turn]]:
    """Let the jobs of (command, OUT) train in turn for `seconds` together, then kill them.

    For each job its turns; those of equal index belong together.
    """
    jobs: list[Job] = []
    try:
        for command, out in commands:
            jobs.append(Job(command, out))
            jobs[-1].wait_until_warm(warm_up)
            jobs[-1].stop()
        return _measure(jobs, seconds, max(TURN_S, TURN_STEPS * step_ms / 1e3))
    finally:
        for job in jobs:
            job.kill()


def _measure(jobs: Sequence[Job], seconds: float, turn_s: float) -> list[list[Turn]]:
    windows: list[list[tuple[int, int]]] = [[] for _ in jobs]
    for number in range(int(seconds / turn_s / len(jobs))):
        # A B, then B A: a drift meets both alike.
        for at in range(len(jobs)) if number % 2 == 0 else reversed(range(len(jobs))):
            jobs[at].go_on()
            begin = time.monotonic_ns()
            time.sleep(turn_s)
            windows[at].append((begin + SETTLING_NS, time.monotonic_ns()))
            jobs[at].stop()
    turns: list[list[Turn]] = [[] for _ in jobs]
    for pair in range(len(windows[0])):
        measured = [_turn(job, *windows[at][pair]) for at, job in enumerate(jobs)]
        if all(turn is not None for turn in measured):
            for at, turn in enumerate(measured):
                turns[at].append(turn)  # type: ignore[arg-type]
    return turns


def _turn(job: Job, begin: int, end: int) -> Turn | None:
    steps, cpu = [], []
    for rank in range(job._ranks):
        notes = job.steps(rank)
        inside = notes[(notes[:, 0] >= begin) & (notes[:, 0] <= end)]
        if len(inside) < FEWEST_STEPS + 1:
            return None
        steps.append(float(np.median(np.diff(inside[:, 0]))))
        cpu.append(float(inside[-1, 1] - inside[0, 1]) / (len(inside) - 1))
    return Turn(statistics.mean(steps), statistics.mean(cpu))


def _family(pid: int) -> list[int]:
    """A process and all that descend from it, oldest first."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit("used by bench/overhead.py")
