"""Where the training thread is, about 20 times a second: what lets a finding name file, line and function."""

from __future__ import annotations

import os
import sys
import threading
import time
from time import monotonic_ns
from types import CodeType
from typing import TYPE_CHECKING

from rankscope.base.guard import guard
from rankscope.capture import callsite
from rankscope.capture.source import Source
from rankscope.records import payload
from rankscope.records.host import StackSample

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MAX_FRAMES = 64
MAX_STACKS = 20_000


class Stacks(Source):
    """One sleeping thread that wakes, reads the frames of the training thread, and sleeps again.

    The thread ends before a fork and starts again after it: a forked child must not inherit half a thread.
    """

    name = "stacks"
    emits = (StackSample,)
    stage = "stacks"

    def install(self, agent: Agent) -> None:
        self._agent = agent
        self._thread: threading.Thread | None = None
        self._alarm = threading.Lock()
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[CodeType, int], int] = {}
        self.thread_cpu_ns = 0
        self._state_file = -1
        self._state_of = 0
        agent.on_open.append(self._start)
        agent.before_fork.append(self._stop)
        agent.after_fork.append(self._restart)
        agent.at_end.append(self._stop)
        if agent.ring is not None:
            self._start()

    def remove(self) -> None:
        self._stop()
        self._close_state()
        self._agent.on_open.remove(self._start)
        self._agent.before_fork.remove(self._stop)
        self._agent.after_fork.remove(self._restart)
        self._agent.at_end.remove(self._stop)

    def _start(self) -> None:
        # After a fork, ids of the parent's names and stacks mean nothing to the new ring.
        self._stacks.clear()
        self._frames.clear()
        self._close_state()
        self._run()

    def _restart(self) -> None:
        if self._agent.ring is not None and not self._agent.ended:
            self._run()

    def _run(self) -> None:
        if self._agent.sample_hz <= 0:
            return
        # Held until the thread is to end. To wait for it costs half of what `Event.wait` does, which is Python code.
        self._alarm = threading.Lock()
        self._alarm.acquire()
        self._thread = threading.Thread(target=self._sample, args=(self._alarm,), name="rankscope", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            self._alarm.release()
            thread.join(0.5)

    def _sample(self, alarm: threading.Lock) -> None:
        agent = self._agent
        put = agent.thread_put()
        planned = monotonic_ns()
        spent_before = self.thread_cpu_ns
        while agent.sample_hz > 0:
            interval = 1 / agent.sample_hz
            if alarm.acquire(True, interval) or agent.ended or agent.ring is None:
                return
            with guard("sampling a stack"):
                now = monotonic_ns()
                target = agent.thread
                stack = self._stack(target)
                cpu = time.clock_gettime_ns(time.pthread_getcpuclockid(target))
                # Last: a thread that gave the interpreter to this one takes a moment to fall asleep over it.
                late = max(0, now - planned - int(interval * 1e9)) | self._state(target) << 48
                put(now, 0, StackSample.code, agent.phase, agent.step, stack, cpu, late)
            planned = monotonic_ns()
            self.thread_cpu_ns = spent_before + time.thread_time_ns()

    def _state(self, thread: int) -> int:
        """The kernel's letter for what a thread does now: running code without the interpreter lock it is `R`, asleep
        `S`; a thread that wants the lock, which this one holds, sleeps too, and has kept this one waiting before."""
        if self._state_of != thread:
            self._close_state()
            self._state_of = thread
            ids = (t.native_id for t in threading.enumerate() if t.ident == thread)
            tid = next(ids, None) or os.getpid()
            try:
                self._state_file = os.open(f"/proc/self/task/{tid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return 0  # no /proc: the state is not known
        if self._state_file < 0:
            return 0
        line = os.pread(self._state_file, 512, 0)
        return line[line.rindex(b")") + 2]

    def _close_state(self) -> None:
        if self._state_file >= 0:
            os.close(self._state_file)
        self._state_file = -1
        self._state_of = 0

    def _stack(self, thread: int) -> int:
        """Id of the stack of a thread, written the first time; 0 when there is none or there are too many."""
        frame = sys._current_frames().get(thread)
        ids: list[int] = []
        frames = self._frames
        while frame is not None and len(ids) < MAX_FRAMES:
            key = (frame.f_code, frame.f_lasti)
            known = frames.get(key)
            if known is None:
                known = self._agent.name(callsite.describe(frame.f_code, frame.f_lineno or 0))
                frames[key] = known
            ids.append(known)
            frame = frame.f_back
        key_of_stack = tuple(ids)
        stack = self._stacks.get(key_of_stack)
        if stack is None:
            if len(self._stacks) >= MAX_STACKS or self._agent.ring is None:
                return 0
            stack = self._stacks[key_of_stack] = len(self._stacks) + 1
            self._agent.ring.payload(payload.STACK, stack, " ".join(map(str, ids)))
        return stack
