"""The simulation behind a made-up run: ranks with a clock each, and collectives that make them wait for one another.

A rank's program is a generator. It spends time, writes records, enters collectives, and yields only where it has to
wait for peers. So times are consistent: who waits, waits until the last rank has come, plus the transfer.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rankscope.records.collective import Collective, CommunicationWait
from rankscope.testing.places import ALL_REDUCE, END_LINE, Frames, loop
from rankscope.testing.writer import Writer

Program = Generator[None, None, None]

MS = 1_000_000
DEFAULT_GROUP = "group:default"

NATIVE = "native"
"""Computes in C++ without the interpreter lock: a stack sample comes at once."""
PYTHON = "python"
"""Runs Python code: a sample waits 5 ms for the interpreter lock."""
ASLEEP = "asleep"
"""Uses no CPU."""
HOLDING = "holding"
"""Holds the interpreter lock to its end, as a garbage collection does: the sample comes when it is over."""

CALL_NS = 2_000
"""Python between a call and the moment that the operation is entered."""

LATE_NS = {NATIVE: 120_000, PYTHON: 430_000, ASLEEP: 120_000}
"""How late a stack sample comes, as measured: as threads wake; where Python holds the lock, when it is asked for it."""
PATIENT_LATE_NS = 5_000_000
"""The same of Python code, where other threads compete for the lock."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What a thread did from one moment to another: what a stack sample taken then shows."""

    start: int
    end: int
    frames: Frames
    state: str
    phase: str
    step: int
    cpu: float
    """CPUs used, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call of one rank."""

    group: str
    sequence: int
    members: tuple[int, ...]
    entered: int


@dataclass(slots=True)
class World:
    """Who has entered which collective, and when."""

    size: int
    entered: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    entries: int = 0

    def enter(self, call: Call, rank: int) -> None:
        """Note that a rank has entered a collective."""
        self.entered.setdefault((call.group, call.sequence), {})[rank] = call.entered
        self.entries += 1

    def everybody_in(self, call: Call) -> bool:
        """Whether all members have entered."""
        return len(self.entered[call.group, call.sequence]) >= len(call.members)

    def last_enter(self, call: Call) -> int:
        """When the last one so far entered."""
        return max(self.entered[call.group, call.sequence].values())

    def run(self, programs: Sequence[Program]) -> None:
        """Let all ranks run to their end. Raises AssertionError where they wait for each other for ever."""
        waiting = list(programs)
        while waiting:
            before = self.entries
            still = [program for program in waiting if _goes_on(program)]
            assert len(still) < len(waiting) or self.entries > before, "the made-up ranks wait for each other"
            waiting = still


def _goes_on(program: Program) -> bool:
    """Let a rank run until it waits or ends; False where it has ended."""
    return next(program, program) is not program


class Thread:
    """The training thread of one rank: a clock, a stack, and the records it writes."""

    def __init__(self, rank: int, world: World, writer: Writer, now: int, *, noise: float = 0.0, seed: int = 0) -> None:
        self.rank = rank
        self.world = world
        self.writer = writer
        self.now = now
        self.step = 0
        self.line = END_LINE
        self.phase = ""
        self.cpu_ns = 0
        """CPU time used so far."""
        self.activities: list[Activity] = []
        self.in_backward = False
        self.backward_calls = 0
        self.last_enter_ns = 0
        self._pushed: list[str] = []
        self._sequences: dict[str, int] = {}
        self._noise = noise
        self._random = random.Random(f"{seed}/{rank}")

    # -- time --------------------------------------------------------------------------------------------------

    def noisy(self, ns: float) -> int:
        """A duration with the run's noise."""
        if not self._noise:
            return round(ns)
        return round(ns * max(0.2, self._random.gauss(1.0, self._noise)))

    def spend(self, ns: float, *leaf: str, state: str = NATIVE, cpu: float | None = None) -> None:
        """Let time pass with `leaf` as the innermost frames."""
        self._pass(self.now + round(ns), leaf, state, cpu)

    def until(self, moment: int, *leaf: str, state: str = ASLEEP) -> None:
        """Let time pass up to a moment; nothing where it is over already."""
        if moment > self.now:
            self._pass(moment, leaf, state, None)

    def _pass(self, end: int, leaf: Frames, state: str, cpu: float | None) -> None:
        if end <= self.now:
            return
        used = (0.0 if state == ASLEEP else 1.0) if cpu is None else cpu
        self.activities.append(Activity(self.now, end, (*self.frames(), *leaf), state, self.phase, self.step, used))
        self.cpu_ns += round((end - self.now) * used)
        self.now = end

    def frames(self) -> Frames:
        """The stack as it is: the training loop at its line, and what it has called."""
        return (*loop(self.line), *self._pushed)

    @contextmanager
    def inside(self, *frames: str, line: int | None = None, phase: str | None = None) -> Iterator[None]:
        """Within: `frames` are called by what runs now (at `line` of the loop), in `phase`."""
        before = self.line, self.phase, len(self._pushed)
        self.line = self.line if line is None else line
        self.phase = self.phase if phase is None else phase
        self._pushed += frames
        yield
        self.line, self.phase = before[:2]
        del self._pushed[before[2] :]

    # -- communication -----------------------------------------------------------------------------------------

    def enter(
        self,
        name: str = "allreduce",
        *,
        bytes: int = 4,
        members: Sequence[int] | None = None,
        group: str = DEFAULT_GROUP,
        site: str = "",
        point_to_point: bool = False,
        enqueue_ns: int = 20_000,
    ) -> Call:
        """Call an operation and come back when it is enqueued. All ranks of `members` must call it."""
        self.spend(CALL_NS, *ALL_REDUCE)
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        everyone = tuple(range(self.world.size)) if members is None else tuple(members)
        call = Call(group, sequence, everyone, self.now)
        self.world.enter(call, self.rank)
        if self.in_backward:
            self.backward_calls += 1
            self.last_enter_ns = self.now
        self.spend(enqueue_ns, *ALL_REDUCE)
        self.writer.put(
            Collective, call.entered, self.now, self.step, name=name, group=group, sequence=sequence, bytes=bytes,
            site=site, shape=f"float32[{max(1, bytes // 4)}]", elements=min(max(1, bytes // 4), (1 << 24) - 1),
            in_backward=int(self.in_backward), point_to_point=int(point_to_point),
        )  # fmt: skip
        return call

    def wait(self, call: Call, transfer_ns: float, *, site: str = "", record: bool = True) -> Program:
        """Block until all have come and the transfer is done."""
        begin = self.now
        while not self.world.everybody_in(call):
            yield
        self.until(self.world.last_enter(call) + round(transfer_ns), *ALL_REDUCE)
        if record:
            self.writer.put(
                CommunicationWait, begin, self.now, self.step,
                name="wait", group=call.group, sequence=call.sequence, site=site,
            )  # fmt: skip

    def blocking_call(self, name: str, transfer_ns: float, *, site: str = "", group: str = DEFAULT_GROUP) -> Program:
        """An operation whose call itself blocks, as gloo's barrier does: one record, no wait of its own."""
        self.spend(CALL_NS, *ALL_REDUCE)
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        call = Call(group, sequence, tuple(range(self.world.size)), self.now)
        self.world.enter(call, self.rank)
        while not self.world.everybody_in(call):
            yield
        self.until(self.world.last_enter(call) + round(transfer_ns), *ALL_REDUCE)
        self.writer.put(
            Collective, call.entered, self.now, self.step, name=name, group=group, sequence=sequence, site=site,
            shape="()",
        )  # fmt: skip
