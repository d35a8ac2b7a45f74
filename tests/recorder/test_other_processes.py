"""Other busy processes of the machine are found, but for those that take no CPU from anybody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rankscope.recorder.counters import other_processes

BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize("idle_only", [False, True])
def test_a_process_that_only_runs_when_nobody_else_wants_to_takes_nothing(idle_only):
    child = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        if idle_only:
            os.sched_setscheduler(child.pid, os.SCHED_IDLE, os.sched_param(0))
        _, before = other_processes(set(), {})
        deadline = time.monotonic() + 10
        found: set[int] = set()
        while time.monotonic() < deadline and child.pid not in found:
            time.sleep(0.3)
            busy, before = other_processes(set(), before)
            found.update(process.pid for process in busy)
            if idle_only and before[child.pid] > 500_000_000:
                break
    finally:
        child.kill()
        child.wait()

    assert (child.pid in found) == (not idle_only)
