"""Whatever ends whom in the middle: training ends as it would have, and the report comes from what is there."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from rankscope.base.manifest import read_manifest
from rankscope.store.open import open_store

pytestmark = pytest.mark.slow
LONG = {"STEPS": "100000"}


def _rankscope(playground, *words):
    return subprocess.run(
        [sys.executable, "-m", "rankscope", *words],
        cwd=playground.folder, capture_output=True, check=False, timeout=120, text=True,
    )  # fmt: skip


def test_ctrl_c_in_a_terminal_ends_both_and_the_report_is_printed(playground):
    control, terminal = pty.openpty()

    def own_terminal() -> None:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    process = playground.start(
        sys.executable, "train.py", environment=LONG, stdin=terminal, stdout=terminal, preexec_fn=own_terminal
    )
    os.close(terminal)
    playground.wait_for_training()
    os.write(control, b"\x03")
    done = playground.finish(process)
    os.close(control)

    assert done.returncode == 130
    assert done.stderr.count(b"KeyboardInterrupt\n") == 1  # the command got one, not two
    assert playground.report().run.steps >= 10
    playground.nothing_is_left()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_rankscope_reaches_the_command(playground, number, code):
    process = playground.start(sys.executable, "train.py", environment=LONG, start_new_session=True)
    playground.wait_for_training()
    process.send_signal(number)

    assert playground.finish(process).returncode == code
    assert playground.report().run.steps >= 10
    playground.nothing_is_left()


def test_a_killed_recorder_is_started_again_and_nothing_is_lost(playground):
    process = playground.start(sys.executable, "train.py", environment={"STEPS": "1200"})
    playground.wait_for_training()
    os.kill(playground.recorder(), signal.SIGKILL)
    done = playground.finish(process)

    assert (done.returncode, done.stdout) == (0, b"trained\n")
    report = playground.report()
    assert (report.run.steps, report.step.steps, report.lost.records) == (1200, 1180, 0)
    (run,) = playground.runs.iterdir()
    assert read_manifest(run).recorder_restarts == 1
    assert b"rankscope: the recorder was started again once; see " in done.stderr
    playground.nothing_is_left()


def test_a_recorder_killed_again_and_again_costs_only_what_it_could_not_read(playground):
    process = playground.start(sys.executable, "train.py", environment={"STEPS": "1500"})
    playground.wait_for_training()
    for _ in range(5):
        os.kill(playground.recorder(), signal.SIGKILL)
        time.sleep(0.2)
        if process.poll() is not None or not any("train.py" in w for w in playground.processes().values()):
            break
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and not any("record" in w for w in playground.processes().values()):
            time.sleep(0.05)
        if not any("record" in w for w in playground.processes().values()):
            break
    done = playground.finish(process)

    assert (done.returncode, done.stdout) == (0, b"trained\n")
    assert playground.report().run.steps == 1500
    playground.nothing_is_left()


def test_kill_9_of_rankscope_lets_training_go_on_and_diagnose_works_after(playground):
    process = playground.start(sys.executable, "train.py", environment={"STEPS": "600"}, stdout=subprocess.DEVNULL)
    playground.wait_for_training()
    process.kill()
    process.wait()
    assert any("train.py" in words for words in playground.processes().values())

    playground.nothing_is_left()  # training ends, then the recorder

    (run,) = playground.runs.iterdir()
    done = _rankscope(playground, "diagnose", str(run))
    assert done.returncode == 0, done.stderr
    assert "600 steps" in done.stdout
    assert playground.report().run.steps == 600


def test_kill_9_of_everybody_leaves_a_run_that_can_be_diagnosed(playground):
    process = playground.start(sys.executable, "train.py", environment=LONG)
    playground.wait_for_training()
    recorder = playground.recorder()
    process.kill()
    process.wait()
    for pid in (recorder, *playground.processes()):
        os.kill(pid, signal.SIGKILL)
    (run,) = playground.runs.iterdir()

    done = _rankscope(playground, "diagnose", str(run))

    assert done.returncode == 0, done.stderr
    assert playground.report().run.steps >= 10
    playground.nothing_is_left()


def test_diagnose_of_a_running_run_asks_its_recorder(playground):
    process = playground.start(sys.executable, "train.py", environment=LONG)
    playground.wait_for_training()
    time.sleep(1)
    (run,) = playground.runs.iterdir()

    done = _rankscope(playground, "diagnose", str(run))
    listed = _rankscope(playground, "runs", "--runs-dir", str(playground.runs))

    process.terminate()
    assert playground.finish(process).returncode == 143
    assert done.returncode == 0, done.stderr
    assert "the run is going on; asking its recorder" in done.stderr
    assert " steps" in done.stdout
    assert listed.stdout.rstrip().endswith("running")


def test_kill_9_of_a_rank_ends_as_torchrun_ends_it(playground):
    script = playground.folder / "ddp.py"
    script.write_text(
        "import os, signal, time, torch, torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "torch.set_num_threads(1)\n"
        "dist.init_process_group('gloo')\n"
        "model = DDP(torch.nn.Linear(64, 64))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "for step in range(100):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.randn(8, 64)).sum().backward()\n"
        "    optimizer.step()\n"
        "    if step == 60 and dist.get_rank() == 1:\n"
        "        open('killed', 'w').write(f'{os.getpid()} {time.monotonic_ns()}')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = playground.python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ddp.py")

    assert done.returncode == 1
    report = playground.report()
    assert report.run.world_size == 2
    assert report.run.steps in (60, 61)
    assert report.lost.records == 0
    (first, *others) = report.findings
    assert (first.cause, first.ranks) == ("dead-rank", (1,))
    assert "SIGKILL" in first.title
    assert "failure" not in [finding.kind for finding in others]
    (run,) = playground.runs.iterdir()
    pid, killed_ns = map(int, (playground.folder / "killed").read_text().split())
    with open_store(run / "store") as store:
        (last,) = store.query(f"SELECT max(time_ns + duration_ns) AS last FROM slots WHERE process = {pid}").to_pylist()
    assert killed_ns - 10_000_000 < last["last"] <= killed_ns
    playground.nothing_is_left()
