"""`--on-hang` and `--on-failure`: a command that hangs or fails is ended, started again, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from rankscope.base.manifest import read_manifest
from rankscope.report.report import from_json

HANGS = """
import os, signal, time
from datetime import timedelta
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def agree_on(loss):
    dist.barrier()

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(minutes=10))
rank = dist.get_rank()
if rank in [int(x) for x in os.environ.get("DEAF", "").split()]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
hangs = os.environ.get("HANGS") == "always" or not os.path.exists("been_here")
dist.barrier()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 64)).sum()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
    if hangs and step == 40 and rank == 1:
        open("been_here", "w").close()
        agree_on(loss)
dist.barrier()
time.sleep(0.1)
dist.destroy_process_group()
"""

FAILS = """
import os, subprocess, sys
import torch
torch.set_num_threads(1)
with open("starts", "a") as file:
    file.write("x")
if "LEAVES" in os.environ:
    null = subprocess.DEVNULL
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdout=null, stderr=null,
                     start_new_session=True)
fails = os.path.getsize("starts") <= int(os.environ.get("FAILURES", "1000"))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if fails and step == 20:
        raise ValueError("no score")
"""


def _torchrun(playground):
    (playground.folder / "hangs.py").write_text(HANGS)
    return sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "hangs.py"


def _fails(playground):
    (playground.folder / "fails.py").write_text(FAILS)
    return sys.executable, "fails.py"


def _starts(playground):
    return (playground.folder / "starts").stat().st_size


def _read_until(process, text):
    """What a process says on stderr up to the line with a text."""
    said = b""
    while text not in said:
        line = process.stderr.readline()
        assert line, said.decode()
        said += line
    return said


def _told(attempts):
    return [(one.number, one.why, one.exit_code, one.steps, one.cause, one.ranks) for one in attempts]


class TestOptions:
    """Refused before anything is started."""

    @pytest.mark.parametrize(
        "options, why",
        [
            (("--restarts", "2"), "--restarts says how often, but not when; add --on-hang restart"),
            (("--on-hang", "stop", "--restarts", "2"), "--restarts says how often, but not when"),
            (("--on-failure", "restart", "--restarts", "-1"), "-1 is out of range: write a whole number, 0 or more"),
            (("--on-failure", "stop"), "invalid choice: 'stop'"),
        ],
    )
    def test_what_does_not_fit_together(self, playground, options, why):
        done = playground.python("train.py", options=options)

        assert (done.returncode, done.stdout) == (2, b"")
        assert why in done.stderr.decode()
        assert not playground.runs.exists()


@pytest.mark.slow
class TestHang:
    def test_stop_ends_the_command_and_the_report_says_why_it_hung(self, playground):
        process = playground.start(*_torchrun(playground), options=("--on-hang", "stop"))
        playground.wait_for((playground.folder / "been_here").exists, "the hang")
        begin = time.monotonic()
        done = playground.finish(process)
        took_s = time.monotonic() - begin

        assert done.returncode == 1  # torchrun's own
        assert took_s < 30
        assert b"rankscope: the command hangs; ending it (--on-hang stop)\n" in done.stderr
        report = playground.report()
        first = report.findings[0]
        assert (report.verdict, first.cause, first.ranks) == ("failed", "missing-collective", (1,))
        assert _told(report.run.attempts) == [(1, "hang", 1, 41, "missing-collective", (1,))]
        assert [one.signal for one in report.run.exits] == ["SIGTERM", "SIGTERM"]
        assert b"Attempts" not in done.stderr
        playground.nothing_is_left()

    def test_restart_goes_on_with_a_second_attempt(self, playground):
        done = playground.run(*_torchrun(playground), options=("--on-hang", "restart"))

        assert done.returncode == 0
        report = playground.report()
        assert report.run.steps == 60
        assert not [finding for finding in report.findings if finding.kind == "failure"]
        assert report.verdict != "failed"
        assert _told(report.run.attempts)[0] == (1, "hang", 1, 41, "missing-collective", (1,))
        assert [(one.why, one.exit_code, one.steps) for one in report.run.attempts] == [
            ("hang", 1, 41), ("done", 0, 60),
        ]  # fmt: skip
        assert b"attempt 1 stopped at step 41: missing-collective on rank 1; attempt 2 came to its end" in done.stderr
        (kept,) = playground.runs.glob("*/attempt-*.report.json")
        assert kept.name == "attempt-1.report.json"
        assert from_json(kept.read_bytes(), str(kept)).findings[0].cause == "missing-collective"
        playground.nothing_is_left()

    def test_a_second_hang_is_found_as_the_first_was_and_ranks_that_ignore_sigterm_are_killed(self, playground):
        options = ("--on-hang", "restart", "--restarts", "1")
        done = playground.run(*_torchrun(playground), options=options, environment={"HANGS": "always", "DEAF": "0 1"})

        assert done.returncode == 128 + signal.SIGKILL
        assert b"rankscope: attempt 2 hung; no restart is left (--restarts 1)\n" in done.stderr
        report = playground.report()
        hung = ("hang", None, 41, "missing-collective", (1,))
        assert _told(report.run.attempts) == [(1, *hung), (2, *hung)]
        assert [one.signal for one in report.run.attempts] == ["SIGKILL", "SIGKILL"]
        assert report.findings[0].cause == "missing-collective"  # and not that a rank was killed
        assert b"the same failure again, at the same step (41): missing-collective on rank 1" in done.stderr
        playground.nothing_is_left()

    def test_sigterm_while_the_command_is_being_ended_ends_everything(self, playground):
        options = ("--on-hang", "restart")
        process = playground.start(*_torchrun(playground), options=options, environment={"DEAF": "0 1"})
        _read_until(process, b"the command hangs; ending it")
        process.send_signal(signal.SIGTERM)
        done = playground.finish(process)

        assert done.returncode != 0
        assert b"starting again" not in done.stderr
        assert playground.report().findings[0].cause == "missing-collective"
        playground.nothing_is_left()

    def test_without_the_option_a_hang_is_only_reported(self, playground):
        process = playground.start(*_torchrun(playground), start_new_session=True)
        _read_until(process, b"missing-collective, rank 1")
        time.sleep(3)
        goes_on = process.poll() is None
        process.send_signal(signal.SIGTERM)
        done = playground.finish(process)

        assert goes_on
        assert b"ending it" not in done.stderr
        assert playground.report().run.attempts == ()
        playground.nothing_is_left()


@pytest.mark.slow
class TestFailure:
    def test_restart_goes_on_until_it_succeeds(self, playground):
        done = playground.run(
            *_fails(playground), options=("--on-failure", "restart"), environment={"FAILURES": "1", "LEAVES": "1"}
        )

        assert (done.returncode, _starts(playground)) == (0, 2)
        assert b"rankscope: attempt 1 ended with exit code 1; starting again in 1 s (restart 1 of 3)\n" in done.stderr
        report = playground.report()
        assert (report.verdict, report.run.steps) == ("healthy", 40)
        assert _told(report.run.attempts) == [
            (1, "failure", 1, 21, "rank-exception", (0,)),
            (2, "done", 0, 40, None, ()),
        ]
        left = [pid for pid, words in playground.processes().items() if "time.sleep(1000)" in words[-2]]
        assert len(left) == 1  # what the last attempt leaves is the user's, as ever
        os.kill(left[0], signal.SIGKILL)
        playground.nothing_is_left()

    def test_no_more_than_the_restarts_that_were_asked_for(self, playground):
        done = playground.run(*_fails(playground), options=("--on-failure", "restart", "--restarts", "1"))

        assert (done.returncode, _starts(playground)) == (1, 2)
        assert b"rankscope: attempt 2 ended with exit code 1; no restart is left (--restarts 1)\n" in done.stderr
        report = playground.report()
        assert report.verdict == "failed"
        assert [one.why for one in report.run.attempts] == ["failure", "failure"]
        assert b"the same failure again, at the same step (21): rank-exception on rank 0" in done.stderr
        playground.nothing_is_left()

    def test_a_command_that_was_told_to_end_is_not_started_again(self, playground):
        process = playground.start(
            sys.executable, "train.py",
            options=("--on-failure", "restart"), environment={"STEPS": "100000"}, start_new_session=True,
        )  # fmt: skip
        playground.wait_for_training()
        process.send_signal(signal.SIGTERM)
        done = playground.finish(process)

        assert done.returncode == 143
        assert b"starting again" not in done.stderr
        assert playground.report().run.attempts == ()
        playground.nothing_is_left()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_in_the_pause_ends_everything(self, playground, number):
        process = playground.start(*_fails(playground), options=("--on-failure", "restart"), start_new_session=True)
        _read_until(process, b"starting again in 1 s")
        process.send_signal(number)
        done = playground.finish(process)

        assert (done.returncode, _starts(playground)) == (1, 1)
        assert b"rankscope: interrupted; the command is not started again\n" in done.stderr
        assert playground.report().findings[0].cause == "rank-exception"
        playground.nothing_is_left()

    def test_kill_9_in_the_pause_leaves_what_can_be_diagnosed(self, playground):
        process = playground.start(*_fails(playground), options=("--on-failure", "restart"))
        _read_until(process, b"starting again in 2 s")
        process.kill()
        process.wait()
        playground.nothing_is_left()
        (run,) = playground.runs.iterdir()
        (run / "attempt-1.report.json").unlink()  # it may also have been killed before that was written

        subprocess.run(
            [sys.executable, "-m", "rankscope", "diagnose", str(run)],
            cwd=playground.folder, capture_output=True, check=True, timeout=120,
        )  # fmt: skip

        failed = ("failure", 1, 21, "rank-exception", (0,))
        assert _told(playground.report().run.attempts) == [(1, *failed), (2, *failed)]
        assert (run / "attempt-1.report.json").exists()

    def test_nothing_is_noted_of_a_run_that_needed_no_restart(self, playground):
        done = playground.python("train.py", options=("--on-failure", "restart", "--on-hang", "restart"))

        assert (done.returncode, done.stdout) == (0, b"trained\n")
        assert playground.report().run.attempts == ()
        (run,) = playground.runs.iterdir()
        assert read_manifest(run).attempts == ()
        playground.nothing_is_left()

    def test_a_command_that_is_gone_is_not_started_again(self, playground):
        script = playground.folder / "once.sh"
        script.write_text('#!/bin/sh\nrm "$0"\nexit 4\n')
        script.chmod(0o755)

        done = playground.run(str(script), options=("--on-failure", "restart"))

        assert done.returncode == 4
        assert b"once.sh' again: there is no such program\n" in done.stderr
        playground.nothing_is_left()
