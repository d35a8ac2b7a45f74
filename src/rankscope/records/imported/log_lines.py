"""What a plain-text log says: the lines that report something, in the order of the file."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.records.imported.table import Table

EXCEPTION = "exception"
"""A Python traceback with its end; `name` is the type."""
DRIVER_ERROR = "driver-error"
"""`name` says of what: `Xid`, `ECC`, `PCIe`, `NVLink`, `machine check`, `peer memory`; `number` is the Xid."""
FABRIC_ERROR = "fabric-error"
"""A network port or link went down, or a transfer failed in the fabric."""
MEMORY_KILL = "memory-kill"
"""The kernel, Slurm or Kubernetes ended a process for want of memory; `name` is the process."""
CRASH = "crash"
"""A process died from a fault in native code; `name` is the signal."""
EXIT = "exit"
"""A launcher tells of a process's end; `number` is its exit code, negative for a signal."""
TOLD_TO_END = "told-to-end"
"""A launcher or scheduler ended processes; `name` says why, where it does."""
WATCHDOG = "watchdog"
"""A collective took longer than its timeout; `number` is its sequence number, `name` the operation."""
PROGRESS = "progress"
"""How far a rank was at a timeout: `enqueued` and `completed`."""
PEER_LOST = "peer-lost"
"""Another rank has gone away; never the beginning."""
MESSAGE = "message"
"""An error without a traceback."""
MONITORED_BARRIER = "monitored barrier"
"""`name` of a message that says of a rank that it did not come to one."""
STUCK_WATCHDOG = "stuck watchdog"
"""`name` of a message that a rank's own watchdog thread stands still: in the driver, or waiting for Python's lock."""

FEW = 30


@dataclass(frozen=True, slots=True)
class Place:
    """A line of Python code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One line that reports something (or one traceback)."""

    kind: str
    line: int
    """In the file, from 1."""
    text: str
    """Without what stands before the message; at most 600 characters."""
    time_ns: int | None = None
    """Wall clock, of this line or the last one before that has a time; None where no line before has one."""
    rank: int | None = None
    """As the line itself says; None where it does not."""
    local_rank: int | None = None
    pid: int | None = None
    host: str = ""
    name: str = ""
    number: int | None = None
    place: Place | None = None
    """Innermost line of the user's code in a traceback."""
    to_the_top: bool = False
    """The traceback begins at the program's own top level: nobody caught it on the way."""
    in_loader: bool = False
    """It was raised in a worker of a DataLoader."""
    group: str = ""
    """Process group of a collective."""
    elements: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    timeout_ms: float | None = None
    step_before: int | None = None
    """Step of the last line of training progress before it in the file."""
    step_after: int | None = None
    """Of the first one after it."""
    progress_after: int = 0
    """Lines of training progress after it."""


@dataclass(frozen=True, slots=True)
class RankLines:
    """What one rank wrote, whatever it said."""

    rank: int
    lines: int
    last_line: int
    """The last one of its own: the threads of PyTorch and NCCL go on to write while the program stands still."""
    last_time_ns: int | None
    last_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines(Table):
    """One log file. Lines that report nothing are only counted."""

    events: tuple[LogEvent, ...]
    num_lines: int
    num_dropped: int
    """Events beyond those that are kept: the first and the last ones of a kind are."""
    ranks: tuple[RankLines, ...]
    """Of the prefixes of lines; empty where lines have none."""
    world_size: int | None
    """As a line says."""
    pids: tuple[tuple[int, int], ...]
    """(process, rank), as lines of NCCL and of torchrun say."""
    num_steps: int
    """Lines of training progress."""
    few_losses: tuple[tuple[int, float], ...] = ()
    """(step, training loss) where there are fewer than `FEW`; more are a `ScalarLog`, for whoever reads curves."""
