"""Finding what a command has started, and signals that reach nobody else."""

import os
import signal
import subprocess
import sys

import pytest

from rankscope.base.process_stat import process_stat
from rankscope.base.rundir import ENV_RUN_DIR, RunDir
from rankscope.cli.family import Member, family
from rankscope.records import ring_layout

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.fixture
def start():
    started = []

    def start(command=SLEEP, **more):
        started.append(subprocess.Popen(command, **more))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def member(pid):
    return Member(pid, process_stat(pid).start_ticks)


def test_a_process_is_found_by_its_parent_in_whatever_session(start, tmp_path):
    line = f"import subprocess; p = subprocess.Popen({SLEEP!r}, start_new_session=True); print(p.pid, flush=True); "
    parent = start([sys.executable, "-c", line + "p.wait()"], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())

    found = family(parent.pid, RunDir(tmp_path))

    os.kill(child, signal.SIGKILL)
    parent.stdout.close()
    assert {one.pid for one in found} == {parent.pid, child}


def test_a_process_without_a_parent_is_found_by_the_runs_environment(start, tmp_path):
    ours = start(env={**os.environ, ENV_RUN_DIR: str(tmp_path / "20260101-aa")})
    start(env={**os.environ, ENV_RUN_DIR: str(tmp_path / "20260101-aab")})

    assert family(None, RunDir(tmp_path / "20260101-aa")) == {member(ours.pid)}


def test_an_observed_process_is_found_by_its_ring_unless_its_pid_is_another_ones_now(start, tmp_path):
    run = RunDir(tmp_path / "20260101-aa")
    run.rings.mkdir(parents=True)
    ours, stranger = start(), start()
    for process, later in ((ours, 0), (stranger, 1)):
        head = ring_layout.HEADER.pack(
            ring_layout.MAGIC, process.pid, 1, member(process.pid).start_ticks - later, 0, 0, 0, 0
        )
        (run.rings / f"{process.pid}-1.ring").write_bytes(head)

    assert family(None, run) == {member(ours.pid)}


def test_a_signal_does_not_reach_another_process_with_the_same_pid(start):
    process = start()
    before = member(process.pid)._replace(start_ticks=1)

    before.send(signal.SIGKILL)
    member(process.pid).send(signal.SIGTERM)

    assert process.wait() == -signal.SIGTERM


def test_the_end_of_a_process_before_the_signal_is_no_error(start):
    process = start()
    gone = member(process.pid)
    process.kill()
    process.wait()

    gone.send(signal.SIGTERM)

    assert not gone.alive
