"""The command and its recorder, side by side: started, watched, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import rankscope
from rankscope.base.rundir import (
    ENV_BUDGET, ENV_CONFIG, ENV_LEVEL, ENV_OFF, ENV_RING_DIR, ENV_RUN_DIR, RunDir,
)  # fmt: skip
from rankscope.capture.config import Config
from rankscope.report.report import from_json
from rankscope.views.terminal import render_alert

MAX_RESTARTS = 3
DRAIN_S = 60.0


def observed_environment(
    environ: Mapping[str, str], run: RunDir, rings: Path | None, config: Config, file: Path | None
) -> dict[str, str]:
    """The command's environment: ours in front of its PYTHONPATH, everything else as it was."""
    site = str(Path(rankscope.__file__).parent / "capture" / "site")
    path = environ.get("PYTHONPATH")
    observed = {
        **environ,
        "PYTHONPATH": f"{site}{os.pathsep}{path}" if path else site,
        ENV_RUN_DIR: str(run.root),
        ENV_LEVEL: config.level,
        ENV_BUDGET: str(config.budget),
    }
    if rings is not None:
        observed[ENV_RING_DIR] = str(rings)
    if file is not None:
        observed[ENV_CONFIG] = str(file.absolute())
    return observed


class Alerts:
    """New findings of the run that is going on, one line each on stderr."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._read = 0

    def show(self) -> None:
        try:
            with self._run.alerts.open(encoding="utf-8") as file:
                file.seek(self._read)
                lines = file.readlines()
                self._read = file.tell()
        except OSError:
            return
        if not lines:
            return
        wanted = {json.loads(line)["finding"] for line in lines if line.endswith("\n")}
        report = from_json(self._run.report.read_text(encoding="utf-8"), str(self._run.report))
        for finding in report.findings:
            if finding.id in wanted:
                print(f"rankscope: {render_alert(finding)}", file=sys.stderr)


class Launch:
    """Runs the command to its end, whatever happens to the recorder."""

    def __init__(self, run: RunDir, command: Sequence[str], environment: dict[str, str]) -> None:
        self._run = run
        self._command = command
        self._environment = environment
        self._recorder: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self.recorder_restarts = 0
        self.exit_code: int | None = None
        """As Python counts: negative for a signal."""

    def run(self, alerts: Alerts) -> int:
        """Start both, wait, end the recorder; the exit code a shell would give (128 + signal)."""
        self._start_recorder()
        handlers = {number: signal.signal(number, self._forward) for number in (signal.SIGTERM, signal.SIGHUP)}
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, _leave_to_child)
        try:
            self._child = subprocess.Popen(self._command, env=self._environment)
            next_look = 0.0
            while True:
                try:
                    self.exit_code = self._child.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    pass
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + 1.0
                    self._watch_recorder()
                    _quietly(alerts.show)
        finally:
            self._end_recorder()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        _quietly(alerts.show)
        return 128 - self.exit_code if self.exit_code < 0 else self.exit_code

    def _start_recorder(self) -> None:
        environment = {**os.environ, ENV_OFF: "1"}
        try:
            with self._run.recorder_log.open("ab") as log:
                self._recorder = subprocess.Popen(
                    [sys.executable, "-m", "rankscope", "record", str(self._run.root), "--supervised"],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            print(f"rankscope: no recorder ({error}); the report comes from the rings alone", file=sys.stderr)

    def _watch_recorder(self) -> None:
        """Start the recorder again where something ended it: what it had not kept is still in the rings."""
        if self._recorder is None or self._recorder.poll() is None:
            return
        if self.recorder_restarts >= MAX_RESTARTS:
            return
        self.recorder_restarts += 1
        self._close_pipe()
        self._start_recorder()

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


def _leave_to_child(number: int, frame: FrameType | None) -> None:
    """Ctrl-C reaches the command by itself (same terminal); we stay for the report."""


def _quietly(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except (OSError, ValueError, KeyError):
        return
