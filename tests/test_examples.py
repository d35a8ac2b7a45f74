"""The examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.report.report import from_json

EXAMPLE = Path(__file__).parents[1] / "examples" / "train.py"


def _start(folder, *command):
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env={**os.environ, "RANKSCOPE_RUNS_DIR": str(folder)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def _report(folder):
    (file,) = folder.glob("*/report.json")
    return from_json(file.read_bytes(), str(file))


@pytest.mark.slow
def test_under_the_command(tmp_path):
    done = _start(tmp_path, "-m", "rankscope", "run", "--", sys.executable, str(EXAMPLE))

    assert done.returncode == 0, done.stderr
    report = _report(tmp_path)
    assert report.run.steps == 60
    assert "tokenise" in {line.phase for line in report.step.budget}


@pytest.mark.slow
def test_by_itself(tmp_path):
    done = _start(tmp_path, str(EXAMPLE))
    assert done.returncode == 0, done.stderr

    (run,) = (path.parent for path in tmp_path.glob("*/run.json"))
    deadline = time.monotonic() + 60
    while Path("/dev/shm", f"rankscope-{run.name}").exists():  # its recorder ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = _start(tmp_path, "-m", "rankscope", "diagnose", str(run))

    assert done.returncode == 0, done.stderr
    assert _report(tmp_path).run.steps == 60
