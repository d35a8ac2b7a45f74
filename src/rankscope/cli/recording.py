"""A run while it goes on: rings into the spool, and from time to time a look at the run in a process of its own."""

from __future__ import annotations

import logging
import os
import subprocess
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from rankscope.base.clock import now_ns
from rankscope.base.errors import UserError
from rankscope.base.guard import guard
from rankscope.base.manifest import read_manifest, write_manifest
from rankscope.base.own_command import own_command, own_environment
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.cli.session import open_when_free, resume_points
from rankscope.recorder.counters import machine_counters
from rankscope.recorder.recorder import Recorder
from rankscope.store.lock import FolderLock
from rankscope.store.store import StoreError
from rankscope.wire.spool import Spool

if TYPE_CHECKING:
    from typing_extensions import Self

TEND_EVERY_NS = 10_000_000_000
"""Between two checks of the spool, and of rings that are read to their end."""
MAX_SPOOLED_BYTES = 64 << 20
"""More is brought into the store before the next look is due."""
FIRST_LOOK_NS = 30_000_000_000
"""When a run is analysed for the first time; before, few have finished their warm-up."""
CROWDED_FIRST_LOOK_NS = 120_000_000_000
"""The same where no CPU is idle: a look takes about a second of CPU time, then from the ranks."""
LONGEST_PAUSE_NS = 300_000_000_000
"""No finding of a long run is told later than this, as long as an analysis is short."""
TIMES_AS_LONG = 200
"""Between two looks passes so many times the CPU time of one: together they use at most 0.5 % of one CPU."""

log = logging.getLogger("rankscope")


class Recording:
    """Call `tick` some times a second.

    The engine of the store would keep 250 MB and a quarter percent of a CPU busy as long as it is open. Here nobody
    opens it: `rankscope collect` does, for a look, and is gone. Until then frames lie in the spool.
    """

    def __init__(self, run: RunDir, *, supervised: bool = False) -> None:
        """Raises UserError where another process records the run."""
        self.run = run
        self.supervised = supervised
        """Someone collects and reports when the run has ended."""
        self._lock = FolderLock(run.root)
        self._spool = Spool(run.spool)
        self._recorder = Recorder(ring_folders(run), self._spool, resume=_resume(run, self._spool))
        self._collecting: subprocess.Popen[bytes] | None = None
        self._next_tend = now_ns() + TEND_EVERY_NS
        self._begin = now_ns()
        self._busy_at_begin = _busy_ns()
        self._next_look = self._begin + FIRST_LOOK_NS
        self._pause = FIRST_LOOK_NS

    @property
    def alive(self) -> int:
        """Observed processes that still exist."""
        return self._recorder.alive

    @property
    def handles(self) -> list[int]:
        """Files that become readable when an observed process ends."""
        return self._recorder.handles

    @property
    def seen(self) -> int:
        """Observed processes so far."""
        return self._recorder.seen

    def tick(self) -> int:
        """Read the rings; look at the run when it is time. The time at which it was called."""
        now = now_ns()
        self._recorder.tick()
        if self._collecting is not None:
            self._reap(self._collecting)
        elif self._recorder.stall_due():
            self._collect("--report")
        elif (now >= self._next_look and self._may_look(now)) or self._asked():
            self._next_look = now + self._pause
            # Ever rarer: an analysis costs time that the ranks could use.
            self._pause = min(self._pause * 2, LONGEST_PAUSE_NS)
            self._collect("--report")
        elif now >= self._next_tend:
            self._next_tend = now + TEND_EVERY_NS
            self._recorder.close_ended()
            if self._spool.pending_bytes() > MAX_SPOOLED_BYTES:
                self._collect()
        return now

    def _may_look(self, now: int) -> bool:
        """False once: a first look that would take its CPU time from the ranks has to wait."""
        passed = now - self._begin
        if passed >= CROWDED_FIRST_LOOK_NS or (os.cpu_count() or 1) - (_busy_ns() - self._busy_at_begin) / passed > 0.5:
            return True
        self._next_look = self._begin + CROWDED_FIRST_LOOK_NS
        return False

    def _asked(self) -> bool:
        """Whether `rankscope diagnose` waits for a report of this run."""
        return self.run.request.exists()

    def _collect(self, *options: str) -> None:
        with guard("starting to collect"):
            self._recorder.flush()
            command = own_command("collect", str(self.run.root), *options)
            self._collecting = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=own_environment())

    def _reap(self, child: subprocess.Popen[bytes]) -> None:
        """If the collecting process has ended, put the next one off by what it took."""
        cpu_ns = 0
        try:
            pid, _, used = os.wait4(child.pid, os.WNOHANG)
            if not pid:
                return
            cpu_ns = int((used.ru_utime + used.ru_stime) * 1e9)
        except ChildProcessError:
            if os.path.exists(f"/proc/{child.pid}"):
                return  # who started us ignores SIGCHLD, and so do we: the kernel waits for our children itself
        child.returncode = 0  # it has been waited for; Popen need not try
        self._collecting = None
        self._next_look = max(self._next_look, now_ns() + TIMES_AS_LONG * cpu_ns)
        # One that was killed has left it: it must not be started again and again for whoever asked.
        self.run.request.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._collecting is not None:
            self._collecting.kill()  # whoever collects next finds every frame that it had not committed
            self._collecting.wait()
        with guard("keeping the last records"):
            self._recorder.finish()
        if not self.supervised:
            with guard("saying that the run has ended"):
                manifest = read_manifest(self.run.root)
                duration = (now_ns() - manifest.started_ns) / 1e9
                write_manifest(self.run, replace(manifest, finished=True, duration_s=duration))
            self._collect("--report")
            if self._collecting is not None:
                self._collecting.wait()
        self._lock.release()


def _busy_ns() -> int:
    """CPU time that all CPUs together have spent on anything."""
    return next((value for name, value, _ in machine_counters() if name == "machine_busy_ns"), 0)


def _resume(run: RunDir, spool: Spool) -> dict[tuple[int, int], int]:
    """Where a recorder before this one has stopped reading."""
    if not run.store.exists():
        return resume_points(None, spool)
    try:
        with open_when_free(run) as store:
            return resume_points(store, spool)
    except (UserError, StoreError, OSError) as error:
        log.error("the store does not say what it holds, some records may come twice: %s", error)
        return resume_points(None, spool)
