"""What the ranks of a run that goes on do, asked from another terminal."""

import subprocess
import sys

import pytest

TRAIN = """
import ctypes, os, signal, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def trouble():
    {trouble}
for step in range(30):
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
open("training", "w").close()
trouble()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "level, trouble, state",
    [
        ("standard", "ctypes.PyDLL(None).sleep(60)", "holds the interpreter lock"),
        ("standard", "os.kill(os.getpid(), signal.SIGSTOP)", "is stopped by a signal (SIGSTOP) or a debugger"),
        ("light", "time.sleep(60)", "waits (clock_nanosleep: the end of a sleep)"),
    ],
    ids=["lock held", "stopped", "never sampled"],
)
def test_a_rank_that_cannot_be_sampled_is_seen_from_outside(playground, level, trouble, state):
    playground.train.write_text(TRAIN.format(trouble=trouble))
    playground.start(sys.executable, str(playground.train), options=("--level", level))
    playground.wait_for_training()
    shown = subprocess.run(
        [sys.executable, "-m", "rankscope", "stacks", "--runs-dir", str(playground.runs), "last"],
        capture_output=True, text=True, cwd=playground.folder,
    )  # fmt: skip

    first, *frames = shown.stdout.splitlines()
    assert shown.returncode == 0
    assert first.startswith("rank 0  (process ") and state in " ".join(shown.stdout.split())
    assert any(line.startswith("    trouble  ") for line in frames)
