"""What processes do that rankscope did not start; runs are asked for in tests/cli."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.base import py_spy
from rankscope.base.process_stat import process_stat
from rankscope.cli import processes

SLEEPS = "time.sleep(60)"
ATTACH, DETACH = 16, 17
"""Requests to ptrace."""
HOLDS = "ctypes.PyDLL(None).sleep(60)"
LAUNCHER = """
import os, subprocess, sys
children = [
    subprocess.Popen([*WRAP, sys.executable, FILE], env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    for rank in (0, 1)
]
print(*(child.pid for child in children), flush=True)
for child in children:
    child.wait()
"""


@pytest.fixture
def launch(tmp_path):
    """`launch()` -> (pid of the launcher, pids of its two ranks), as torchrun has them."""
    started = []

    def start(*wrap, **environment):
        rank = tmp_path / "rank.py"
        rank.write_text("import time\ndef step():\n    time.sleep(60)\nstep()\n")
        file = tmp_path / "launcher.py"
        file.write_text(f"WRAP, FILE = {list(wrap)}, {str(rank)!r}{LAUNCHER}")
        launcher = subprocess.Popen(
            ["python", file], stdout=subprocess.PIPE, env={**os.environ, **environment}, start_new_session=True
        )
        started.append(launcher)
        pids = [int(word) for word in launcher.stdout.readline().split()]
        time.sleep(0.5)
        return launcher.pid, pids

    yield start
    for launcher in started:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
        launcher.stdout.close()


def of(answer):
    """The output; the exit code is 0, nothing is complained of, and no line is wide."""
    code, out, error = answer
    assert (code, error) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    return out


def refusal(answer):
    code, out, error = answer
    assert (code, out, error.count("\n")) == (2, "", 1)
    return error.removeprefix("rankscope: ").rstrip("\n")


def test_a_single_process(rankscope, child):
    pid = child(SLEEPS).pid

    lines = of(rankscope("stacks", str(pid))).splitlines()
    assert lines[0] == f"process {pid}  waits (clock_nanosleep: the end of a sleep)"
    assert [line.split("  ")[2].strip() for line in lines[1:3]] == ["<module>", "busy"]


def test_native_frames_stand_below_the_innermost_line(rankscope, child):
    lines = of(rankscope("stacks", str(child(HOLDS).pid))).splitlines()

    assert lines[0].endswith(", holds the interpreter lock")
    assert lines[2].startswith("    busy  ") and lines[-1].startswith("    clock_nanosleep (libc")


def test_one_that_computes(rankscope, child):
    pid = child("while True: sum(range(1000))").pid

    assert of(rankscope("stacks", str(pid))).startswith(f"process {pid}  runs, holds the interpreter lock\n")


@pytest.mark.parametrize("given", ["launcher", "rank"])
def test_all_ranks_of_a_launch_are_found_from_one_process(rankscope, launch, given):
    launcher, ranks = launch()

    out = of(rankscope("stacks", str(launcher if given == "launcher" else ranks[1])))

    waits = "waits (clock_nanosleep: the end of a sleep)"
    assert out.splitlines()[:2] == [f"rank {rank}  (process {pid}) {waits}" for rank, pid in enumerate(ranks)]
    assert out.count("    step  ") == 1


def test_a_launcher_that_has_a_rank_of_its_own(rankscope, launch):
    launcher, _ = launch(RANK="7")

    assert [line[:6] for line in of(rankscope("stacks", str(launcher))).splitlines()[:2]] == ["rank 0", "rank 1"]


def test_ranks_that_a_shell_has_started(rankscope, launch):
    launcher, _ = launch("sh", "-c", '"$0" "$1"; true')

    assert of(rankscope("stacks", str(launcher))).count("    step  ") == 1


def test_two_numbers_of_one_launch_are_one_launch(rankscope, launch):
    launcher, ranks = launch()

    assert of(rankscope("stacks", str(launcher), str(ranks[0]))).count("rank 0") == 1


def test_python_processes_without_a_launch_are_shown_with_those_below(rankscope, child):
    parent = child(f"subprocess.run([sys.executable, '-c', 'import time; {SLEEPS}'])").pid
    time.sleep(0.3)

    assert of(rankscope("stacks", str(parent))).count("process ") == 2


def test_one_that_is_stopped_is_said_to_be(rankscope, child):
    process = child(SLEEPS)
    process.send_signal(signal.SIGSTOP)

    out = of(rankscope("stacks", str(process.pid)))
    assert out.startswith(f"process {process.pid}  is stopped by a signal (SIGSTOP) or a debugger\n    <module>  ")


def test_one_that_a_debugger_holds_is_said_to_be(rankscope, child):
    pid = child(SLEEPS).pid
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    if ptrace(ATTACH, pid, None, None):
        pytest.skip("this user may not trace")
    os.waitpid(pid, 0)

    out = of(rankscope("stacks", str(pid)))
    ptrace(DETACH, pid, None, None)
    told = f"process {pid} is stopped by a signal (SIGSTOP) or a debugger (process {os.getpid()} traces it)"
    assert " ".join(out.split("    <module>")[0].split()) == told


def test_a_look_leaves_a_process_as_it_was(rankscope, child):
    process = child("[time.sleep(0.1) for _ in range(30)]; sys.exit(7)")

    of(rankscope("stacks", str(process.pid)))

    assert process.wait(20) == 7


def test_without_the_right_to_trace_proc_still_tells(rankscope, launch, no_right_to_trace):
    launcher, ranks = launch()

    lines = of(rankscope("stacks", str(launcher))).splitlines()
    assert lines[0] == f"rank 0  (process {ranks[0]}) waits (clock_nanosleep: the end of a sleep)"
    assert lines[2].startswith("    no stack could be taken: this user may not look into it (ptrace is forbidden")


def test_without_py_spy_proc_still_tells(rankscope, child, monkeypatch):
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    pid = child("while True: sum(range(1000))").pid

    assert of(rankscope("stacks", str(pid))).splitlines() == [
        f"process {pid}  runs",
        "    no stack could be taken: py-spy is not installed, which takes stacks from outside (pip install",
        "    py-spy)",
    ]


def test_where_native_frames_cannot_be_read_the_others_are_shown(rankscope, child, tmp_path, monkeypatch):
    program = py_spy.find_py_spy()
    (tmp_path / "py-spy").write_text(f'#!/bin/sh\ncase "$*" in *--native*) exit 2;; esac\nexec {program} "$@"\n')
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    lines = of(rankscope("stacks", str(child(HOLDS).pid))).splitlines()
    assert lines[0].endswith(", holds the interpreter lock") and lines[-1].startswith("    busy  ")


def test_native_frames_that_take_too_long_are_left_out(rankscope, child, tmp_path, monkeypatch):
    program = py_spy.find_py_spy()
    (tmp_path / "py-spy").write_text(f'#!/bin/sh\ncase "$*" in *--native*) exec sleep 60;; esac\nexec {program} "$@"\n')
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(processes, "NATIVE_NS", 200_000_000)

    assert of(rankscope("stacks", str(child(SLEEPS).pid))).splitlines()[-1].startswith("    busy  ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make namespaces everywhere")
def test_a_process_of_another_pid_namespace(rankscope, tmp_path):
    (tmp_path / "inner.py").write_text(f"import time\nprint(flush=True)\n{SLEEPS}\n")
    outer = subprocess.Popen(
        ["unshare", "-pf", "--kill-child", sys.executable, tmp_path / "inner.py"], stdout=subprocess.PIPE
    )
    outer.stdout.readline()
    (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    answer = rankscope("stacks", inner)
    outer.kill()
    outer.wait()
    outer.stdout.close()

    lines = of(answer).splitlines()
    assert lines[0] == f"process {inner}  waits (clock_nanosleep: the end of a sleep)"
    assert lines[1].startswith("    <module>  ")


class TestWhatCannotBeTold:
    def test_no_such_process(self, rankscope):
        assert refusal(rankscope("stacks", "4194303")).startswith("4194303: there is no such process")

    def test_one_that_proc_does_not_show(self, rankscope, child, monkeypatch):
        pid = child(SLEEPS).pid
        gone = process_stat(4194303)
        monkeypatch.setattr(processes, "process_stat", lambda pid: gone)

        assert f"{pid}: is another user's and not to be seen in /proc" in refusal(rankscope("stacks", str(pid)))

    def test_no_python_process(self, rankscope):
        process = subprocess.Popen(["sleep", "60"])

        said = refusal(rankscope("stacks", str(process.pid)))
        process.kill()
        process.wait()

        assert said.startswith(f"{process.pid}: is no Python process, and none is below it")

    def test_one_that_nobody_waited_for(self, rankscope, child):
        process = child(SLEEPS)
        process.kill()
        time.sleep(0.1)

        assert "has ended, and its parent has not asked how (zombie)" in refusal(rankscope("stacks", str(process.pid)))

    def test_a_run_and_a_process(self, rankscope):
        assert refusal(rankscope("stacks", "last", "1")) == "give one run, or the numbers of processes"

    @pytest.mark.skipif(os.getuid() != 0, reason="only root may make namespaces everywhere")
    def test_the_number_that_a_process_has_in_its_container(self, rankscope):
        high = int(Path("/proc/sys/kernel/pid_max").read_text()) - 200
        code = f"echo {high} > /proc/sys/kernel/ns_last_pid; sleep 60 & echo $!; wait"
        outer = subprocess.Popen(["unshare", "-pf", "--kill-child", "sh", "-c", code], stdout=subprocess.PIPE)
        inner = outer.stdout.readline().decode().strip()
        said = refusal(rankscope("stacks", inner))
        outer.kill()
        outer.wait()
        outer.stdout.close()

        assert said.startswith(f"{inner}: is the number that process ") and "inside its container" in said
