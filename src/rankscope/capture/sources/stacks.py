"""Where the training thread is, about 20 times a second: what lets a finding name file, line and function."""

from __future__ import annotations

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
        self._wake = threading.Event()
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[CodeType, int], int] = {}
        self.thread_cpu_ns = 0
        if agent.config.sample_hz > 0 and agent.config.level != "light":
            agent.on_open.append(self._start)
            agent.before_fork.append(self._stop)
            agent.after_fork.append(self._restart)

    def remove(self) -> None:
        self._stop()

    def _start(self) -> None:
        # After a fork, ids of the parent's names and stacks mean nothing to the new ring.
        self._stacks.clear()
        self._frames.clear()
        self._run()

    def _restart(self) -> None:
        if self._agent.ring is not None and not self._agent.ended:
            self._run()

    def _run(self) -> None:
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(self._wake,), name="rankscope", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            self._wake.set()
            thread.join(0.5)

    def _sample(self, wake: threading.Event) -> None:
        agent = self._agent
        interval = 1 / agent.config.sample_hz
        target = agent.thread
        put = agent.thread_put()
        clock = time.pthread_getcpuclockid(target)
        planned = monotonic_ns()
        spent_before = self.thread_cpu_ns
        while not wake.wait(interval):
            if agent.ended or agent.ring is None:
                return
            with guard("sampling a stack"):
                now = monotonic_ns()
                late = now - planned - int(interval * 1e9)
                stack = self._stack(target)
                cpu = time.clock_gettime_ns(clock)
                put(now, 0, 42, agent.phase, agent.step, stack, cpu, late)
            planned = monotonic_ns()
            self.thread_cpu_ns = spent_before + time.thread_time_ns()

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
