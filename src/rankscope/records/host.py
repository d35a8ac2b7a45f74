"""What the host did to a process: garbage collection, compilation, stacks, counters of the operating system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field


@dataclass(frozen=True, slots=True)
class GcPause(Record):
    """One run of Python's cyclic garbage collector."""

    code: ClassVar[int] = 40
    kind: ClassVar[str] = "gc_pause"
    generation: int = field("a", "", "generation collected")
    collected: int = field("b", "count", "objects collected")


@dataclass(frozen=True, slots=True)
class Compile(Record):
    """One compilation of a frame by torch.compile."""

    code: ClassVar[int] = 41
    kind: ClassVar[str] = "compile"
    name: str = field("name", "", "function and place", is_name=True, bits=16)
    reason: int = field("a", "", "name id of the guard that failed; 0: first compilation", bits=16)
    ordinal: int = field("b", "count", "compilations of this frame before")
    limit: int = field("c", "", "1: the recompile limit was reached, the frame runs uncompiled from now on", bits=1)


EAGER_NS = 250_000
"""After so long the sampler asks a thread that runs Python code for the interpreter lock, where no other thread could
be disturbed by that; elsewhere after Python's own 5 ms, in which the thread may have come to another line."""

SILENT_NS = 2_000_000_000
"""A stack sampler that wrote nothing for so long does not run: the interpreter lock is held, the process is stopped, or
there is none (level `light`)."""
SAMPLE_SWITCH_NS = 15_000
"""What one sample takes from the training thread beside the sampling thread's CPU time: the interpreter lock changes
hands twice."""


@dataclass(frozen=True, slots=True)
class StackSample(Record):
    """Where the main thread was, 5 to 20 times a second; it lasts as long as the CPU time that it took, with what the
    sampling thread did since the last one."""

    code: ClassVar[int] = 42
    kind: ClassVar[str] = "stack_sample"
    phase: str = field("name", "", "innermost phase at that moment", is_name=True, bits=16)
    stack: int = field("a", "", "id of the stack in the process's payloads")
    cpu_ns: int = field("b", "ns", "CPU time the main thread had used by then")
    late_ns: int = field("c", "ns", "how much later than planned it was taken, without waiting for a CPU", bits=48)
    state: int = field("c", "", "the kernel's letter of the thread's state (R, S, D, T), or 0", shift=48, bits=8)
    eager: int = field("c", "", "1: the sampler asks for the interpreter lock after EAGER_NS", shift=56, bits=1)
    delay_known: int = field("c", "", "1: `late_ns` leaves out what the sampler waited for a CPU", shift=57, bits=1)


@dataclass(frozen=True, slots=True)
class Counter(Record):
    """One reading of a counter of the operating system, taken by the recorder from outside."""

    code: ClassVar[int] = 43
    kind: ClassVar[str] = "counter"
    name: str = field("name", "", "counter; names of the recorder's own process", is_name=True, bits=16)
    value: int = field("a", "", "cumulated value or gauge")
    of: int = field("b", "", "pid that the counter belongs to; 0: the machine or the job's cgroup")


@dataclass(frozen=True, slots=True)
class ProcessEnd(Record):
    """The recorder saw a process of the run end."""

    code: ClassVar[int] = 44
    kind: ClassVar[str] = "process_end"
    of: int = field("a", "", "pid that ended")
    clean: int = field("b", "", "1: it said goodbye (atexit ran)", bits=1)
    status: int = field("c", "", "how it ended, as `wait` gives it", bits=16)
    known: int = field("c", "", "1: `status` is known; 0: it was waited for before it could be asked", shift=16, bits=1)


@dataclass(frozen=True, slots=True)
class Goodbye(Record):
    """The process is about to end by itself."""

    code: ClassVar[int] = 45
    kind: ClassVar[str] = "goodbye"
    place: str = field("name", "", "`file:line:function` of the user's that raised it", is_name=True, bits=16)
    exception: int = field("a", "", "name id of the exception that ends it; 0: none", bits=16)
    swallowed: int = field("b", "count", "errors of rankscope that were swallowed in this process")
    raised_ns: int = field("c", "ns", "when that exception had come to the end of the program; 0: none")


@dataclass(frozen=True, slots=True)
class Lost(Record):
    """Records that were overwritten, torn or dropped before they could be read."""

    code: ClassVar[int] = 46
    kind: ClassVar[str] = "lost"
    name: str = field("name", "", "why", is_name=True, bits=16)
    count: int = field("a", "count", "records lost")
    of: int = field("b", "", "pid of the process they belonged to")


@dataclass(frozen=True, slots=True)
class DeviceWait(Record):
    """The host read a value of the device and waited for it."""

    code: ClassVar[int] = 47
    kind: ClassVar[str] = "device_wait"
    name: str = field("name", "", "what was called", is_name=True, bits=16)
    site: int = field("a", "", "name id of the call-site", bits=16)


@dataclass(frozen=True, slots=True)
class LastCall(Record):
    """A call that ends the process at once: `os._exit`, `os.abort`."""

    code: ClassVar[int] = 48
    kind: ClassVar[str] = "last_call"
    name: str = field("name", "", "what was called", is_name=True, bits=16)
    site: int = field("a", "", "name id of the call-site", bits=16)
    status: int = field("b", "", "the exit code that it asked for")


@dataclass(frozen=True, slots=True)
class CaughtException(Record):
    """An exception that the program caught and formatted: logged or printed."""

    code: ClassVar[int] = 49
    kind: ClassVar[str] = "caught_exception"
    name: str = field("name", "", "`Type: message`", is_name=True, bits=16)
    site: int = field("a", "", "name id of the innermost line of the user's that raised it", bits=16)


@dataclass(frozen=True, slots=True)
class Fault(Record):
    """What Python's fault handler wrote of a process that a signal ended: one frame of its stack."""

    code: ClassVar[int] = 50
    kind: ClassVar[str] = "fault"
    name: str = field("name", "", "`file:line:function`; names of the recorder's own process", is_name=True, bits=16)
    of: int = field("a", "", "pid of the process")
    depth: int = field("b", "count", "0: the innermost frame")


@dataclass(frozen=True, slots=True)
class OutsideStack(Record):
    """The recorder looked at a rank whose sampler was silent: one frame of its stack, or one record without a frame."""

    code: ClassVar[int] = 51
    kind: ClassVar[str] = "outside_stack"
    name: str = field(
        "name", "", "`file:line:function`, or why there is no stack; names of the recorder's own process",
        is_name=True, bits=16,
    )  # fmt: skip
    of: int = field("a", "", "pid of the process")
    depth: int = field("b", "count", "0: the innermost frame", bits=16)
    state: int = field("c", "", "the kernel's letter of the thread's state (R, S, D, T, t)", bits=8)
    holds_lock: int = field("c", "", "1: the thread holds the interpreter lock", shift=8, bits=1)
    runs: int = field("c", "", "1: the thread used a CPU while it was looked at", shift=9, bits=1)
    known: int = field("c", "", "1: `name` is a frame; 0: it says why there is none", shift=10, bits=1)


NO_PROGRESS = (StackSample, Counter, Goodbye, LastCall, CaughtException, ProcessEnd, Fault, OutsideStack)
"""Records that come whether a rank gets on or not."""
