"""Where the training thread is, some times a second: what lets a finding name file, line and function."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from time import monotonic_ns
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from rankscope.base.guard import guard
from rankscope.capture import callsite
from rankscope.capture.config import sample_rate
from rankscope.capture.governor import FEWEST_HZ
from rankscope.capture.source import Source
from rankscope.records import payload
from rankscope.records.host import EAGER_NS, StackSample

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MAX_FRAMES = 64
"""Innermost frames of a stack that are kept: deeper are recursions, and a sample must stay short."""
FIRST_NS = 20_000_000_000
"""From then on a process is sampled less: 400 samples know every share of its time within 5 points, and more come."""
LATER = 4
"""How much less."""
MAX_STACKS = 20_000
"""Different stacks of a process; a tenth of it fills the ring's room for texts."""


class Stacks(Source):
    """One sleeping thread that wakes, reads the frames of the training thread, and sleeps again.

    To read them it needs the interpreter lock, for which Python lets it wait 5 ms. A shorter piece of Python code would
    never be seen: the lock comes with the next operator of torch, and so would the blame. While all other threads rest,
    only the sampler can be waiting for the lock, and it may be less patient (`EAGER_NS`).

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
        self._frames: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """What the ids in `_frames` belong to, kept so that they are not given to others."""
        self.thread_cpu_ns = 0
        self._patience_s = (sys.getswitchinterval(), 0.0)
        """The user's switch interval, and ours while it is in force (else 0)."""
        self._others: dict[int, tuple[int, int]] = {}
        """Thread -> (frame, instruction) at which it was seen last; the training thread and ours left out."""
        self._state_file = -1
        self._state_of = 0
        self._began_ns = 0
        agent.on_open.append(self._start)
        agent.before_fork.append(self._stop)
        agent.after_fork.append(self._restart)
        agent.in_child.append(self._forget_cost)
        agent.at_end.append(self._stop)
        agent.on_config.append(self._restart)
        if agent.ring is not None:
            self._start()

    def remove(self) -> None:
        self._stop()
        self._close_state()
        self._agent.on_open.remove(self._start)
        self._agent.before_fork.remove(self._stop)
        self._agent.after_fork.remove(self._restart)
        self._agent.in_child.remove(self._forget_cost)
        self._agent.at_end.remove(self._stop)
        self._agent.on_config.remove(self._restart)

    def _start(self) -> None:
        # After a fork, ids of the parent's names and stacks mean nothing to the new ring.
        self._stacks.clear()
        self._frames.clear()
        self._codes.clear()
        self._close_state()
        self._began_ns = monotonic_ns()
        self._run()

    def _restart(self) -> None:
        if self._agent.ring is not None and not self._agent.ended:
            self._run()

    def _forget_cost(self) -> None:
        self.thread_cpu_ns = 0

    def _run(self) -> None:
        if self._agent.sample_hz <= 0 or (self._thread is not None and self._thread.is_alive()):
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
        self._be_patient()

    def _sample(self, alarm: threading.Lock) -> None:
        agent = self._agent
        put = agent.thread_put()
        me = threading.get_ident()
        run_delay = _RunDelay()
        planned = monotonic_ns()
        spent = time.thread_time_ns()
        while agent.sample_hz > 0:
            interval = self._interval(planned)
            if alarm.acquire(True, interval) or agent.ended or agent.ring is None:
                break
            with guard("sampling a stack"):
                now = monotonic_ns()
                target = agent.thread
                frames = sys._current_frames()
                stack = self._stack(frames.pop(target, None))
                cpu = time.clock_gettime_ns(time.pthread_getcpuclockid(target))
                # Last: a thread that gave the interpreter to this one takes a moment to fall asleep over it.
                flags = self._state(target) << 48 | self._eager << 56 | run_delay.known << 57
                waited = max(0, now - planned - int(interval * 1e9) - run_delay.grown())
                before, spent = spent, time.thread_time_ns()
                self.thread_cpu_ns += spent - before
                put(now, spent - before, StackSample.code, agent.phase, agent.step, stack, cpu, waited | flags)
                frames.pop(me, None)
                self._adapt(frames)
            planned = monotonic_ns()
        self._be_patient()
        run_delay.close()

    def _interval(self, now: int) -> float:
        """Seconds to the next sample. The governor may have lowered the rate further than time does."""
        agent = self._agent
        rate = agent.sample_hz
        if now - self._began_ns > FIRST_NS and agent.config.level != "deep":
            rate = min(rate, max(FEWEST_HZ, sample_rate(agent.config) / LATER))
        return 1 / rate

    @property
    def _eager(self) -> bool:
        """Whether our switch interval is in force."""
        return bool(self._patience_s[1]) and sys.getswitchinterval() == self._patience_s[1]

    def _adapt(self, others: dict[int, FrameType]) -> None:
        """Be eager as long as no thread but the training thread and ours has moved since the last sample."""
        seen = {thread: (id(frame), frame.f_lasti) for thread, frame in others.items()}
        resting = seen == self._others
        self._others = seen
        if not resting:
            self._be_patient()
        elif not self._eager:
            theirs = sys.getswitchinterval()  # also one that the user has set since
            if theirs > EAGER_NS / 1e9:
                sys.setswitchinterval(EAGER_NS / 1e9)
                self._patience_s = theirs, sys.getswitchinterval()

    def _be_patient(self) -> None:
        """Put the user's switch interval back, unless the user has set another one."""
        if self._eager:
            sys.setswitchinterval(self._patience_s[0])
        self._patience_s = self._patience_s[0], 0.0

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

    def _stack(self, frame: FrameType | None) -> int:
        """Id of the stack below a frame, written the first time; 0 when there is none or there are too many."""
        ids: list[int] = []
        frames = self._frames
        while frame is not None and len(ids) < MAX_FRAMES:
            key = (id(frame.f_code), frame.f_lasti)  # a code object's hash takes as long as it is large
            known = frames.get(key)
            if known is None:
                if len(frames) >= MAX_STACKS:
                    frames.clear()  # a program that makes its functions anew each step; they must not be kept alive
                    self._codes.clear()
                known = self._agent.name(callsite.describe(frame.f_code, frame.f_lineno or 0))
                frames[key] = known
                self._codes[id(frame.f_code)] = frame.f_code
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


class _RunDelay:
    """How long the calling thread has waited for a CPU, by the scheduler's own count."""

    def __init__(self) -> None:
        self._file = -1
        self._last = 0
        with suppress(OSError):  # no /proc, or a kernel without scheduler statistics
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.grown()

    @property
    def known(self) -> bool:
        return self._file >= 0

    def grown(self) -> int:
        """ns since the last call; 0 where it is not known."""
        if self._file < 0:
            return 0
        before, self._last = self._last, int(os.pread(self._file, 100, 0).split()[1])
        return self._last - before

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
