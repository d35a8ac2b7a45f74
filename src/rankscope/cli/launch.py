"""The command and its recorder, side by side: started, watched, ended."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import rankscope
from rankscope.base.own_command import own_command, own_environment
from rankscope.base.rundir import (
    ENV_BUDGET,
    ENV_CONFIG,
    ENV_LEVEL,
    ENV_RING_DIR,
    ENV_RUN_DIR,
    RunDir,
    ring_folders,
)
from rankscope.capture.config import Config
from rankscope.cli.witness import Witness
from rankscope.report.report import from_json
from rankscope.views.terminal import render_alert

MAX_RESTARTS = 3
"""A recorder that ends again and again has a reason; what it did not keep is read from the rings at the end."""
DRAIN_S = 60.0
"""How long the recorder may take for its last records before it is given up."""
LOOK_EVERY_S = 1.0
"""For alerts and for a recorder that has ended."""
WITNESS_EVERY_S = 0.1
"""As long as no process of the command is observed."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell answers where a command cannot be started."""

SITE = str(Path(rankscope.__file__).parent / "capture" / "site")


class CannotStart(Exception):
    """The command cannot be started; `code` is what a shell would exit with."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def observed_environment(
    environ: Mapping[str, str], run: RunDir, rings: Path | None, config: Config, file: Path | None
) -> dict[str, str]:
    """The command's environment: our folder in front of its PYTHONPATH, and the RANKSCOPE_ variables of the run."""
    path = environ.get("PYTHONPATH")
    observed = {
        **environ,
        "PYTHONPATH": f"{SITE}{os.pathsep}{path}" if path else SITE,
        ENV_RUN_DIR: str(run.root),
        ENV_LEVEL: config.level,
        ENV_BUDGET: str(config.budget),
    }
    if rings is not None:
        observed[ENV_RING_DIR] = str(rings)
    if file is not None:
        observed[ENV_CONFIG] = str(file.absolute())
    return observed


def start_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """The command with our standard streams; CannotStart in the words of the system."""
    try:
        return subprocess.Popen(command, env=environment)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.ENOEXEC:
            why = "it is neither a program nor a script with a #! line"
        elif error.errno == errno.ENOENT:
            why = "the interpreter in its #! line does not exist"
        raise CannotStart(why, NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE) from error


def ended_within(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code of a child that ends within a time, else None.

    `Popen.wait` with a time-out wakes 20 times a second, which takes as much CPU time as the recorder; the kernel can
    say it (Linux 5.3).
    """
    try:
        handle = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return child.poll()


class Alerts:
    """New findings of the run that is going on, one line each on stderr, each shown once."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._read = 0

    def show(self) -> None:
        """Print what is new. Raises OSError, ValueError or KeyError where the recorder left something unreadable."""
        with self._run.alerts.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]  # the recorder may be in the middle of a line
        self._read += len(whole)
        if not whole:
            return
        entries = [json.loads(line) for line in whole.splitlines()]
        for entry in entries:
            for line in entry.get("stall", ()):
                print(line, file=sys.stderr)
        wanted = {entry["finding"] for entry in entries if "finding" in entry}
        if not wanted:
            return
        report = from_json(self._run.report.read_text(encoding="utf-8"), str(self._run.report))
        for finding in report.findings:
            if finding.id in wanted:
                print(render_alert(finding, 100), file=sys.stderr)


class Launch:
    """Runs the command to its end, whatever happens to the recorder."""

    def __init__(self, run: RunDir | None, command: Sequence[str], environment: dict[str, str]) -> None:
        """Without a run the command is only started and waited for."""
        self._run = run
        self._command = command
        self._environment = environment
        self._recorder: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._witness = Witness(command, SITE, ring_folders(run)) if run else None
        self.recorder_restarts = 0
        self.exit_code: int | None = None
        """As Python counts: negative for a signal."""

    @property
    def _observed(self) -> bool:
        """Whether there is nothing more to find out about who lets us in."""
        return self._witness is None or self._witness.observed

    @property
    def reason(self) -> str:
        """Why no process was observed, if none was."""
        return self._witness.reason() if self._witness else ""

    def run(self, alerts: Alerts | None = None) -> int:
        """Start both, wait, end the recorder; the exit code a shell would give (128 + signal). Raises CannotStart."""
        handlers = {number: signal.signal(number, self._forward) for number in (signal.SIGTERM, signal.SIGHUP)}
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupted)
        try:
            self._child = start_command(self._command, self._environment)
            self._start_recorder()
            next_look = 0.0
            while True:
                self.exit_code = ended_within(self._child, LOOK_EVERY_S if self._observed else WITNESS_EVERY_S)
                if self.exit_code is not None:
                    break
                if self._witness is not None:
                    self._witness.look(self._child.pid)
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + LOOK_EVERY_S
                    self._watch_recorder()
                    if alerts is not None:
                        _quietly(alerts.show)
        finally:
            self._end_recorder()
            self._tell_of_restarts()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if alerts is not None:
            _quietly(alerts.show)
        return 128 - self.exit_code if self.exit_code < 0 else self.exit_code

    def _start_recorder(self) -> None:
        if self._run is None:
            return
        try:
            with self._run.recorder_log.open("ab") as log:
                self._recorder = subprocess.Popen(
                    own_command("record", str(self._run.root), "--supervised"),
                    stdin=subprocess.PIPE, stdout=log, stderr=log, env=own_environment(), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            print(f"rankscope: no recorder ({error}); the report comes from the rings alone", file=sys.stderr)

    def _watch_recorder(self) -> None:
        """Start the recorder again where something ended it: what it had not kept is still in the rings."""
        if self._recorder is None or self._recorder.poll() is None or self.recorder_restarts >= MAX_RESTARTS:
            return
        self.recorder_restarts += 1
        self._close_pipe()
        self._start_recorder()

    def _tell_of_restarts(self) -> None:
        if self._run is not None and self.recorder_restarts:
            times = "once" if self.recorder_restarts == 1 else f"{self.recorder_restarts} times"
            print(f"rankscope: the recorder was started again {times}; see {self._run.recorder_log}", file=sys.stderr)

    def _end_recorder(self) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            if recorder.stdin is not None:
                recorder.stdin.write(b"finish\n")
                recorder.stdin.flush()
        except OSError:
            pass  # it has ended already; what it left is collected by the analysis
        try:
            recorder.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            print("rankscope: the recorder does not end; going on without it", file=sys.stderr)
            recorder.kill()
            recorder.wait()
        finally:
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._recorder is not None and self._recorder.stdin is not None:
            _quietly(self._recorder.stdin.close)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C reaches the command by itself, from the terminal that we share; we stay for the report."""
        if not _in_foreground():
            self._forward(number, frame)


def _in_foreground() -> bool:
    """Whether a terminal sends Ctrl-C to our process group, which is the command's too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except (OSError, ValueError, KeyError):
        return
