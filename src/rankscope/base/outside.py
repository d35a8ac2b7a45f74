"""One process as it looks from outside: what its thread does, whether it holds the interpreter lock, and its stack."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankscope.base.clock import now_ns
from rankscope.base.process_stat import process_stat
from rankscope.base.py_spy import Dump, NoStack, ThreadStack, main_thread
from rankscope.base.thread_stat import ThreadStat, status_number, thread_stat, waits_in

WATCH_NS = 500_000_000
"""For so long the thread's CPU time is watched, to tell one that computes from one that sleeps."""
TRIES = 3
"""A process that runs while its memory is read may have moved on; the next reading tells."""
RUNS_ABOVE = 0.2
"""Share of one CPU above which a thread runs, though the kernel found it asleep at that moment."""
STOPPED = "is stopped by a signal (SIGSTOP) or a debugger"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one process."""

    pid: int
    state: str
    """The kernel's letter of the thread: R, S, D, T (SIGSTOP), t (a debugger), Z (zombie), X (gone, or not visible)."""
    cpu_share: float | None
    """CPU time of the thread, of one CPU, over half a second; None: not known."""
    waits_in: str
    """`futex: a lock`; "" where it is not known."""
    tracer: int
    """pid of a debugger; 0: none."""
    stack: ThreadStack | None
    why_no_stack: str = ""

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def runs(self) -> bool:
        if self.stopped or self.state in ("Z", "X"):
            return False
        return self.cpu_share >= RUNS_ABOVE if self.cpu_share is not None else self.state == "R"

    @property
    def holds_lock(self) -> bool:
        return self.stack is not None and self.stack.holds_lock


class Look:
    """A look at one process; `done` is asked from time to time and waits for nothing.

    The thread looked at is the main one, but where another one sleeps and holds the interpreter lock all the while:
    then that one, as all others wait for it.
    """

    def __init__(self, pid: int, limit_ns: int) -> None:
        self._pid = pid
        self._deadline = now_ns() + limit_ns
        self._why = ""
        self._tries = 0
        self._first: list[ThreadStack] = []
        self._second: list[ThreadStack] | None = None
        self._watched: dict[int, ThreadStat] = {}
        self._watched_ns = 0
        self._dump: Dump | None = None
        if process_stat(pid).state in "ZX":
            self._watch()
        else:
            self._start()

    def done(self) -> bool:
        """Whether all has been seen; goes on with what is next."""
        if self._dump is not None:
            self._read(self._dump)
        if self._dump is not None:
            return False
        if now_ns() < self._watched_ns + WATCH_NS and process_stat(self._pid).state not in "ZX":
            return False
        if self._second is None and any(thread.holds_lock for thread in self._first):
            self._second = []
            self._start()  # who holds the lock for a moment only is not said to hold it
        return self._dump is None

    def close(self) -> None:
        """Give up what is still going on."""
        if self._dump is not None:
            self._dump.close()
            self._dump = None

    def _start(self) -> None:
        self._tries += 1
        try:
            self._dump = Dump(self._pid)
        except NoStack as error:
            self._why = str(error)
            self._watch()

    def _read(self, dump: Dump) -> None:
        if not dump.ended():
            if now_ns() > self._deadline:
                self.close()
                self._why = "py-spy did not answer in time"
                self._watch()
            return
        self._dump = None
        try:
            threads = dump.threads()
        except NoStack as error:
            if not error.final and self._tries < TRIES and now_ns() < self._deadline:
                self._start()
                return
            self._why = str(error)
            threads = []
        finally:
            dump.close()
        if self._second is not None:
            self._second = threads
        else:
            self._first = threads
            self._watch()

    def _watch(self) -> None:
        """Remember what the threads that matter have used so far."""
        if not self._watched:
            tids = {self._pid, *(thread.tid for thread in self._first if thread.main or thread.holds_lock)} - {0}
            self._watched = {tid: thread_stat(self._pid, tid) for tid in tids}
            self._watched_ns = now_ns()

    def seen(self) -> Seen:
        """What was seen, of a look that is done."""
        tracer = status_number(self._pid, "TracerPid")
        process = process_stat(self._pid).state
        if process in "ZX":
            return Seen(self._pid, process, None, "", tracer, None, "it has ended")
        held = {thread.tid for thread in self._second or [] if thread.holds_lock}
        chosen = None
        if self._first:
            chosen = main_thread(self._first)
            for thread in self._first:
                if thread.holds_lock and thread.tid in held and thread is not chosen and not self._runs(thread.tid):
                    chosen = thread
            if chosen.holds_lock and chosen.tid not in held:
                chosen = replace(chosen, holds_lock=False)
        tid = chosen.tid if chosen is not None and chosen.tid else self._pid
        state, share = self._share(tid)
        place = waits_in(self._pid, tid) if state in "SD" else ""
        return Seen(self._pid, state, share, place, tracer, chosen, "" if chosen is not None else self._why)

    def _share(self, tid: int) -> tuple[str, float | None]:
        before, after = self._watched.get(tid), thread_stat(self._pid, tid)
        passed = now_ns() - self._watched_ns
        if before is None or after.state == "X" or passed <= 0:
            return after.state, None
        # A tracer stops a process for a moment: only what is stopped at both ends is called stopped.
        state = "S" if after.state in "Tt" and before.state not in "Tt" else after.state
        return state, (after.cpu_ns - before.cpu_ns) / passed

    def _runs(self, tid: int) -> bool:
        state, share = self._share(tid)
        return state == "R" if share is None else share >= RUNS_ABOVE
