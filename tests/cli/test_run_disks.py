"""No disk, no shared memory, no right to write: training goes on, and one line says what is missing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.report.report import from_json

pytestmark = pytest.mark.slow


def test_a_folder_that_cannot_be_written_is_replaced_by_another(playground):
    state = playground.folder / "state"

    done = playground.python(
        "train.py", runs=Path("/proc/nowhere"), environment={"XDG_STATE_HOME": str(state), "STEPS": "30"}
    )

    assert done.returncode == 0
    (file,) = (state / "rankscope" / "runs").glob("*/report.json")
    assert from_json(file.read_bytes(), "").run.steps == 30
    first = done.stderr.decode().splitlines()[0]
    assert first.startswith("rankscope: /proc/nowhere: cannot be written (")
    assert first.endswith(f"this run is kept in {file.parent}")


def test_without_any_place_the_command_runs_unobserved(playground, private_mounts):
    command = shlex.join(playground.command(sys.executable, "train.py", runs=Path("/mnt/runs")))
    script = f"mount -t tmpfs -o ro none /mnt; exec {command}"
    done = playground.finish(
        playground.start(prefix=(*private_mounts, script), environment={"XDG_STATE_HOME": "/mnt", "TMPDIR": "/mnt"})
    )

    assert (done.returncode, done.stdout) == (0, b"trained\n")


def test_a_read_only_working_directory_changes_nothing_for_the_command(playground, private_mounts):
    state = playground.folder / "state"
    state.mkdir()
    command = shlex.join([sys.executable, "-m", "rankscope", "run", "--", sys.executable, str(playground.train)])
    train = playground.train.read_text().replace('open("training", "w").close()', "pass")
    playground.train.write_text(train)
    script = f"mkdir -p /mnt/x; mount -t tmpfs none /mnt; mount -o remount,ro /mnt; cd /mnt; exec {command}"

    done = playground.finish(
        playground.start(prefix=(*private_mounts, script), environment={"XDG_STATE_HOME": str(state), "STEPS": "30"})
    )

    assert (done.returncode, done.stdout) == (0, b"trained\n")
    (file,) = (state / "rankscope" / "runs").glob("*/report.json")
    assert from_json(file.read_bytes(), "").run.steps == 30
    assert "/mnt/rankscope-runs: cannot be written (Read-only file system)" in done.stderr.decode()


def test_full_shared_memory_makes_the_rings_lie_in_the_run_folder(playground, private_mounts):
    script = (
        "mount -t tmpfs -o size=1m none /dev/shm; head -c 1000000 /dev/zero > /dev/shm/full; "
        f"exec {shlex.join(playground.command(sys.executable, 'train.py'))}"
    )

    done = playground.finish(playground.start(prefix=(*private_mounts, script)))

    assert (done.returncode, done.stdout) == (0, b"trained\n")
    assert playground.report().run.steps == 40
    assert playground.report().lost.records == 0


@pytest.mark.parametrize("room", ["100k", "6m"], ids=["full from the start", "full soon"])
def test_a_full_disk_costs_the_command_nothing_and_the_report_no_step(playground, private_mounts, room):
    options = ("--report-json", "r.json")
    command = playground.command(sys.executable, "train.py", runs=Path("/mnt/runs"), options=options)
    script = f"mount -t tmpfs -o size={room} none /mnt; exec {shlex.join(command)}"

    done = playground.finish(playground.start(prefix=(*private_mounts, script), environment={"STEPS": "1500"}))

    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (0, b"trained\n"), said
    assert "internal error" not in said
    assert "no complete report" not in said
    report = from_json((playground.folder / "r.json").read_bytes(), "")
    assert (report.run.steps, report.lost.records) == (1500, 0), report.lost


def test_a_run_on_a_read_only_disk_is_diagnosed_and_stays_as_it_is(playground, private_mounts):
    playground.python("train.py")
    (run,) = playground.runs.iterdir()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    command = shlex.join([sys.executable, "-m", "rankscope", "diagnose", str(run)])
    script = f"mount --bind {run} {run}; mount -o remount,bind,ro {run}; exec {command}"

    done = subprocess.run([*private_mounts, script], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "40 steps" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
