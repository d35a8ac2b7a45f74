"""The recorder alone: how it ends. With a run around it, it is tested in tests/cli."""

import os
import subprocess
import sys
import time

import pytest

from rankscope.base.rundir import RunDir
from rankscope.cli.recording import Recording
from rankscope.store.lock import holder
from rankscope.store.open import open_store


@pytest.mark.slow
@pytest.mark.parametrize("word", [b"finish\n", b"finish\nfinish\n"])
def test_ends_when_told_and_leaves_its_own_records_to_whoever_analyses(add_run, word):
    root = add_run("20260101-100000-aa", finished=False)

    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "record", str(root), "--supervised"],
        input=word, capture_output=True, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(list((root / "spool").glob("*.frame"))) == 1
    assert not (root / "store").exists()


@pytest.mark.slow
def test_whoever_asks_gets_a_report_and_the_end_leaves_everything_in_the_store(add_run):
    run = RunDir(add_run("20260101-100000-aa", finished=False))
    run.request.touch()

    with Recording(run) as recording:
        deadline = time.monotonic() + 60
        while run.request.exists() and time.monotonic() < deadline:
            recording.tick()
            time.sleep(0.1)
        assert run.report.exists()
        assert holder(run.root) == os.getpid()

    assert not list(run.spool.glob("*.frame"))
    with open_store(run.store) as store:
        assert store.query("SELECT count() AS n FROM payloads").to_pylist() == [{"n": 1}]
    assert holder(run.root) is None


IGNORING = """
import signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from pathlib import Path
from rankscope.base.rundir import RunDir
from rankscope.cli.recording import Recording
run = RunDir(Path(sys.argv[1]))
run.request.touch()
with Recording(run, supervised=True) as recording:
    deadline = time.monotonic() + 60
    while (run.request.exists() or recording._collecting) and time.monotonic() < deadline:
        recording.tick()
        time.sleep(0.1)
    assert recording._collecting is None
"""


@pytest.mark.slow
def test_a_program_that_ignores_its_children_hands_that_on_and_nothing_breaks(add_run):
    root = add_run("20260101-100000-aa", finished=False)

    done = subprocess.run([sys.executable, "-c", IGNORING, str(root)], capture_output=True, text=True, timeout=90)

    assert done.returncode == 0, done.stderr
    assert RunDir(root).report.exists()


def test_refuses_a_folder_that_is_no_run(rankscope, tmp_path):
    code, _, error = rankscope("record", str(tmp_path))

    assert code == 2
    assert error == f"rankscope: {tmp_path}: no run folder of rankscope (it has no run.json); see `rankscope runs`\n"
