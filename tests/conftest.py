import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

from rankscope.base import guard

# Where a change is judged, the same examples are tried each time; on a developer's machine new ones look for more.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("repeatable")


REAL_FILES = (os.environ.get("RANKSCOPE_DATA", ""), str(Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data():
    """`data("kineto/small-pair")`: a real file or folder of other projects; where there is none the test is skipped."""

    def find(name):
        for place in REAL_FILES:
            path = Path(place) / name
            if place and path.exists():
                return path
        pytest.skip(f"the real files are not at hand ($RANKSCOPE_DATA/{name})")

    return find


@pytest.fixture(autouse=True)
def our_errors_fail_tests(monkeypatch):
    monkeypatch.setattr(guard, "RERAISE", True)


@pytest.fixture
def child(tmp_path):
    """`child("time.sleep(60)")`: a Python process that does this in line 3 of a file, in `busy`; ends with the test."""
    started = []

    def start(code, **environment):
        file = tmp_path / f"child_{len(started)}.py"
        first = "import ctypes, os, signal, subprocess, sys, time"
        file.write_text(f"{first}\ndef busy():\n    {code}\nprint()\nbusy()\n")
        process = subprocess.Popen(
            [sys.executable, file],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
        started.append(process)
        assert process.stdout.readline()
        time.sleep(0.1)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def no_right_to_trace(tmp_path, monkeypatch):
    """py-spy says what it says where ptrace is forbidden."""
    folder = tmp_path / "bin"
    folder.mkdir()
    text = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    (folder / "py-spy").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit 1\n")
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
