"""A real `rankscope run` in a folder of its own, and a look at what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.report.report import Report, from_json

PACKAGE = str(Path(rankscope.__file__).parent)

TRAIN = """
import os, sys, time
import torch
steps = int(os.environ.get("STEPS", "40"))
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(steps):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    time.sleep(0.005)
    optimizer.step()
    if step == 10:
        open("training", "w").close()
print("trained")
"""


class Playground:
    """`run(...)` starts rankscope and waits; `start(...)` only starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.train = folder / "train.py"
        self.train.write_text(TRAIN)
        self.started: list[subprocess.Popen[bytes]] = []

    def command(self, *command: str, options: tuple[str, ...] = (), runs: Path | None = None) -> list[str]:
        first = [sys.executable, "-m", "rankscope", "run", "--runs-dir", str(runs or self.runs), *options]
        return [*first, "--", *command]

    def start(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        runs: Path | None = None,
        prefix: tuple[str, ...] = (),
        **more: Any,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*prefix, *self.command(*command, options=options, runs=runs)],
            cwd=self.folder,
            env={**os.environ, "PYTHONSAFEPATH": "1", **(environment or {})},
            stdin=more.pop("stdin", subprocess.DEVNULL),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            **more,
        )
        self.started.append(process)
        return process

    def run(self, *command: str, input: bytes | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
        if input is not None:
            more["stdin"] = subprocess.PIPE
        return self.finish(self.start(*command, **more), input)

    def finish(
        self, process: subprocess.Popen[bytes], input: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        out, error = process.communicate(input, timeout=120)
        assert not _tracebacks_of_ours(error), error.decode()
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def python(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        return self.run(sys.executable, *arguments, **more)

    def report(self) -> Report:
        """The report of the one run that was kept here."""
        (file,) = self.runs.glob("*/report.json")
        return from_json(file.read_bytes(), str(file))

    def wait_for(self, seen: Callable[[], object], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not seen():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            time.sleep(0.05)

    def wait_for_training(self) -> None:
        self.wait_for((self.folder / "training").exists, "the tenth step")

    def processes(self) -> dict[int, list[str]]:
        """pid -> command line of every process that belongs to a run of this folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "cmdline").read_bytes()
                known = (entry / "environ").read_bytes() + words
            except OSError:
                continue
            if words and str(self.folder).encode() in known:
                found[int(entry.name)] = words.decode().split("\0")
        return found

    def recorder(self) -> int:
        """pid of the recorder of the run that is going on."""
        found: list[int] = []

        def seen() -> bool:
            found[:] = [pid for pid, words in self.processes().items() if "record" in words]
            return bool(found)

        self.wait_for(seen, "the recorder")
        return found[0]

    def shared_files(self) -> list[Path]:
        ids = [path.name for path in self.runs.iterdir()] if self.runs.is_dir() else []
        return [path for id in ids for path in Path("/dev/shm").glob(f"rankscope-{id}*")]

    def nothing_is_left(self) -> None:
        self.wait_for(lambda: not self.processes(), f"the end of {self.processes()}", 20)
        assert self.shared_files() == []


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[Playground]:
    play = Playground(tmp_path)
    yield play
    for process in play.started:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()
    left = play.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    for path in play.shared_files():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


@pytest.fixture
def private_mounts() -> tuple[str, ...]:
    """A prefix that gives a command mounts of its own; skipped where the machine does not allow it."""
    prefix = ("unshare", "-m", "sh", "-c")
    try:
        allowed = subprocess.run(
            [*prefix, "mount -t tmpfs -o size=1m none /mnt"], capture_output=True, check=False, timeout=20
        )
    except OSError:
        pytest.skip("needs `unshare` to mount a small disk")
    if allowed.returncode:
        pytest.skip("needs the right to mount a small disk (root)")
    return prefix


def _tracebacks_of_ours(text: bytes) -> list[bytes]:
    """Tracebacks that begin in our package, or end in it but for a signal. The training's own pass through it."""
    ours = b'  File "' + PACKAGE.encode()
    found = []
    for traceback in text.split(b"Traceback (most recent call last):")[1:]:
        frames = [line for line in traceback.splitlines() if b'  File "' in line]
        begin = [line for line in frames if b"<frozen" not in line and b"/threading.py" not in line]
        ends_here = bool(frames) and ours in frames[-1] and b"KeyboardInterrupt" not in traceback
        if ends_here or (begin and ours in begin[0]):
            found.append(traceback)
    return found
