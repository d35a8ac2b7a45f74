"""The command, started again where the user asked for it: what ends an attempt, and what is kept of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.base.clock import now_ns
from rankscope.base.manifest import Attempt, Manifest, write_manifest
from rankscope.base.own_command import own_command, own_environment
from rankscope.base.rundir import RunDir
from rankscope.cli.alerts import Alerts
from rankscope.cli.launch import CannotStart, Launch, quietly
from rankscope.cli.new_run import NewRun
from rankscope.cli.progress import working
from rankscope.cli.restarts import Policy
from rankscope.cli.waiting import Signals, ended_within

FIRST_PAUSE_S = 1.0
"""Before the first restart; each later pause is twice as long."""
LONGEST_PAUSE_S = 60.0
LOOK_BACK_S = 60.0
"""How long an attempt may be analysed while the next one waits; what takes longer is analysed at the end of the run."""
ENDED_BY_US = 143
"""Exit code where the command says 0 though its hang was ended: that of SIGTERM."""


class Attempts:
    """Runs the command to its end, as often as the policy says.

    Each attempt has a recorder of its own, which keeps everything before the next one begins.
    """

    def __init__(self, new: NewRun | None, command: Sequence[str], environment: dict[str, str], policy: Policy) -> None:
        """Without a run nothing is recorded, and nothing is known of a hang."""
        self._new = new
        self._command = command
        self._environment = environment
        self._policy = policy
        self._alerts = Alerts(new.run) if new is not None else None
        self._signals = Signals()
        self._all = [Attempt(1, new.manifest.started_ns if new is not None else now_ns())]
        self._recorder_restarts = 0
        self._unobserved = ""

    @property
    def _last(self) -> Attempt:
        return self._all[-1]

    def run(self) -> int:
        """Start, wait, start again; the exit code of the last attempt, as a shell gives it. Raises CannotStart."""
        with self._signals:
            self._attempt()
            while self._another() and self._pause() and self._again():
                pass
        return self._exit_code

    @property
    def _exit_code(self) -> int:
        """Of the last attempt, as a shell gives it."""
        code = self._last.exit_code
        assert code is not None
        if self._last.stopped_ns and code == 0:
            return ENDED_BY_US
        return 128 - code if code < 0 else code

    def manifest(self, manifest: Manifest) -> Manifest:
        """The manifest of the run when it has ended."""
        several = len(self._all) > 1 or self._last.stopped_ns
        return replace(
            manifest, finished=True, duration_s=(now_ns() - manifest.started_ns) / 1e9, exit_code=self._last.exit_code,
            recorder_restarts=self._recorder_restarts, unobserved=self._unobserved,
            attempts=tuple(self._all) if several else (),
        )  # fmt: skip

    def _attempt(self) -> None:
        """Run the command once, to its end or until it hangs."""
        launch = Launch(self._new.run if self._new else None, self._command, self._environment, self._alerts)
        try:
            launch.start(self._signals)
            while launch.watch():
                if self._policy.stops_hangs and self._alerts and self._alerts.hangs(self._last.number):
                    why = f"--on-hang {self._policy.on_hang}"
                    print(f"rankscope: the command hangs; ending it ({why})", file=sys.stderr)
                    self._note(stopped_ns=now_ns())
                    launch.end()
                    break
                if self._new is not None and self._new.run.stop.exists():
                    print(f"rankscope: {_first_line(self._new.run.stop)}; ending the command", file=sys.stderr)
                    self._note(stopped_ns=now_ns())
                    launch.end()
                    break
            self._note(ended_ns=now_ns(), exit_code=launch.exit_code, why=self._why(launch.exit_code))
            if self._another() and not self._last.stopped_ns:
                launch.end()  # what the command has left behind would be in the next one's way
        finally:
            launch.finish()
            self._recorder_restarts += launch.recorder_restarts
            self._unobserved = launch.reason

    def _why(self, code: int | None) -> str:
        if self._last.stopped_ns:
            return "nan" if self._new is not None and self._new.run.stop.exists() else "hang"
        if self._signals.received is not None:
            return "interrupted"
        return "failure" if code else "done"

    def _another(self) -> bool:
        """Whether the last attempt is to be followed by another one."""
        wanted = self._policy.restarts_after(self._last.why) and self._signals.received is None
        return wanted and self._last.number <= self._policy.restarts

    def _note(self, **fields: int | str | None) -> None:
        """Note something about the last attempt, also in the run's folder: we may be killed at any time."""
        self._all[-1] = replace(self._last, **fields)  # type: ignore[arg-type]  # names and types of its fields
        if self._policy.restarts or self._last.stopped_ns:
            self._write()

    def _write(self) -> None:
        if self._new is not None:
            run, manifest = self._new.run, replace(self._new.manifest, attempts=tuple(self._all))
            quietly(lambda: write_manifest(run, manifest))

    # -- between two attempts ----------------------------------------------------------------------------------

    def _pause(self) -> bool:
        """Keep the report of the last attempt and wait; False where a signal says that it was the last one."""
        number = self._last.number
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(number - 1, 10))
        if self._new is not None:
            run = self._new.run
            quietly(lambda: self._look_back(run))
        if self._signals.received is None:
            restart = f"restart {number} of {self._policy.restarts}"
            print(f"rankscope: {self._how()}; starting again in {pause_s:.0f} s ({restart})", file=sys.stderr)
        if self._signals.wait(pause_s):
            print("rankscope: interrupted; the command is not started again", file=sys.stderr)
            return False
        return True

    def _how(self) -> str:
        """`attempt 1 ended with exit code 1`."""
        how = "hung" if self._last.why == "hang" else f"ended with exit code {self._exit_code}"
        return f"attempt {self._last.number} {how}"

    def _look_back(self, run: RunDir) -> None:
        """Have the report of the last attempt made and kept; what is not done in time is done at the end of the run."""
        with working("analysing the records"), run.recorder_log.open("ab") as log:
            child = subprocess.Popen(
                own_command("collect", str(run.root), "--report"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own_environment(), start_new_session=True,
            )  # fmt: skip
            deadline = time.monotonic() + LOOK_BACK_S
            while ended_within(child, 0.1) is None:
                if self._signals.received is not None or time.monotonic() > deadline:
                    child.kill()  # whoever collects next finds every frame that it had not committed
                    child.wait()
        if self._alerts is not None:
            self._alerts.show()

    def _again(self) -> bool:
        """Begin the next attempt and run it; False where it cannot be started."""
        self._all.append(Attempt(self._last.number + 1, now_ns()))
        self._write()
        if self._new is not None:
            self._new.make_ring_folders()  # the last recorder has removed them
        try:
            self._attempt()
        except CannotStart as error:
            self._all.pop()
            print(f"rankscope: cannot start {self._command[0]!r} again: {error}", file=sys.stderr)
            return False
        if self._policy.restarts_after(self._last.why) and self._last.number > self._policy.restarts:
            print(f"rankscope: {self._how()}; no restart is left (--restarts {self._policy.restarts})", file=sys.stderr)
        return True


def _first_line(path: Path) -> str:
    """What a rank wrote; it may be writing yet."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0] or "a rank asks for the end"
    except OSError:
        return "a rank asks for the end"
