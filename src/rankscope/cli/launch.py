"""The command and its recorder, side by side: started, watched, ended."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import rankscope
from rankscope.base.own_command import own_command, own_environment
from rankscope.base.rundir import (
    ENV_BUDGET,
    ENV_CONFIG,
    ENV_LEVEL,
    ENV_ON_NAN,
    ENV_RING_DIR,
    ENV_RUN_DIR,
    RunDir,
    ring_folders,
)
from rankscope.capture.config import Config
from rankscope.cli.alerts import Alerts
from rankscope.cli.ending import end_command
from rankscope.cli.waiting import Signals, ended_within
from rankscope.cli.witness import Witness

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
        ENV_ON_NAN: config.on_nan,
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
            there = shutil.which(command[0]) is not None
            why = "the interpreter in its #! line does not exist" if there else "there is no such program"
        raise CannotStart(why, NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE) from error


class Launch:
    """One start of the command with a recorder beside it: `start`, `watch` until it has ended, `finish`."""

    def __init__(
        self, run: RunDir | None, command: Sequence[str], environment: dict[str, str], alerts: Alerts | None
    ) -> None:
        """Without a run the command is only started and waited for."""
        self._run = run
        self._command = command
        self._environment = environment
        self._alerts = alerts
        self._recorder: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._witness = Witness(command, SITE, ring_folders(run)) if run else None
        self._next_look = 0.0
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

    def start(self, signals: Signals) -> None:
        """Start both; `signals` go to the command from now on. Raises CannotStart."""
        self._child = signals.child = start_command(self._command, self._environment)
        if signals.received is not None:
            self._child.send_signal(signals.received)  # it came while there was no child yet
        self._start_recorder()

    def watch(self) -> bool:
        """Wait a second, or until the command has ended; look after the recorder and show alerts. Whether it runs."""
        assert self._child is not None
        self.exit_code = ended_within(self._child, LOOK_EVERY_S if self._observed else WITNESS_EVERY_S)
        if self.exit_code is not None:
            return False
        if self._witness is not None:
            self._witness.look(self._child.pid)
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY_S
            self._watch_recorder()
            if self._alerts is not None:
                quietly(self._alerts.show)
        return True

    def end(self) -> None:
        """End the command and all that it has started; where it has ended, what it left behind."""
        assert self._child is not None
        end_command(self._child, self._run)
        self.exit_code = self._child.poll()
        if self.exit_code is None:
            print("rankscope: the command was killed and does not end; going on without it", file=sys.stderr)
            self.exit_code = -signal.SIGKILL

    def finish(self) -> None:
        """Let the recorder keep what is left; then nothing of this start is there any more."""
        self._end_recorder()
        self._tell_of_restarts()
        if self._alerts is not None:
            quietly(self._alerts.show)

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
            quietly(self._recorder.stdin.close)


def quietly(call: Callable[[], object]) -> None:
    """Call what may fail where a disk is full or a file is damaged: training goes on without it."""
    try:
        call()
    except (OSError, ValueError, KeyError):
        return
