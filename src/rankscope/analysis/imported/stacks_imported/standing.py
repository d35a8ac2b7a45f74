"""Where one process stands: in a collective, in code of its own, or waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.base.user_code import is_library
from rankscope.records.imported.stack_dump import StackDump, StackFrame, ThreadStack

DISTRIBUTED: Final = "torch/distributed/"
NO_WAITS: Final = ("torch/distributed/elastic/", "torch/distributed/run.py", "torch/distributed/launch")
"""Files of torch.distributed that are on the stack of every launched program."""
AGENT: Final = ("torch/distributed/run.py", "torch/distributed/launcher/", "torch/distributed/elastic/agent/")
BACKWARD: Final = "_engine_run_backward"
"""In it DDP waits for its reductions, in C++."""
SYNC: Final = ("torch/cuda/__init__.py", "torch/cuda/streams.py")
"""There a host waits for its device, and so for the collective that the device is in."""
WORKER: Final = "torch/utils/data/_utils/worker.py"
LOADER: Final = "torch/utils/data/dataloader.py"
PACKAGES: Final = ("torch/", "threading.py", "queue.py", "multiprocessing/", "selectors.py", "socket.py", "concurrent/",
                   "contextlib.py", "runpy.py", "asyncio/", "subprocess.py", "logging/", "importlib/")  # fmt: skip
"""Beginnings of what py-spy leaves of the names of library files."""
LOCKS: Final = ("acquire", "_wait_for_tstate_lock", "__enter__")
ENDS: Final = ("_shutdown",)
RANK, LAUNCHER, LOADER_WORKER = "rank", "launcher", "loader worker"


@dataclass(frozen=True, slots=True)
class Standing:
    """One process of a dump."""

    file: str
    rank: int | None
    pid: int | None
    what: str
    """`rank`, `launcher`, `loader worker`."""
    waits: bool
    """For its peers: in a collective, in backward, or for its device."""
    in_loader: bool
    in_lock: bool
    ended: bool
    """The program is at its end and waits for its threads."""
    leaf: StackFrame
    user: StackFrame | None
    """Innermost frame of the user's own code."""
    threads: int

    @property
    def place(self) -> StackFrame:
        return self.user or self.leaf

    @property
    def who(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.pid}" if self.pid is not None else f"the process of {self.file.rsplit('/', 1)[-1]}"


def standings(dump: StackDump) -> list[Standing]:
    """One for each process, of its main thread."""
    by_process: dict[int, list[ThreadStack]] = {}
    for thread in dump.threads:
        by_process.setdefault(thread.process, []).append(thread)
    alone = len(by_process) == 1
    return [_standing(dump, threads, alone) for threads in by_process.values()]


def _standing(dump: StackDump, threads: Sequence[ThreadStack], alone: bool) -> Standing:
    main = next((t for t in threads if t.main), threads[-1])
    frames = main.frames
    own = next((i for i, f in enumerate(frames) if not _library(f.file)), len(frames))
    inner = frames[: max(own, 1)]
    files = [f.file for f in frames]
    what = RANK
    if any(WORKER in file for file in files):
        what = LOADER_WORKER
    elif any(part in file for file in files for part in AGENT) and own >= len(frames):
        what = LAUNCHER
    return Standing(
        file=dump.file,
        rank=main.rank if main.rank is not None else dump.rank if alone else None,
        pid=main.pid,
        what=what,
        waits=any(_waits(f) for f in inner),
        in_loader=any(LOADER in f.file for f in inner),
        in_lock=any(_plain(f) in LOCKS for f in frames[:3]),
        ended=own >= len(frames) and any(_plain(f) in ENDS and f.file.endswith("threading.py") for f in frames),
        leaf=frames[0],
        user=frames[own] if own < len(frames) else None,
        threads=len(threads),
    )


def _waits(frame: StackFrame) -> bool:
    if _plain(frame) == BACKWARD or (_plain(frame) == "synchronize" and frame.file.endswith(SYNC)):
        return True
    return DISTRIBUTED in frame.file and not any(part in frame.file for part in NO_WAITS)


def _plain(frame: StackFrame) -> str:
    """py-spy since 0.4 writes the class before a method's name."""
    return frame.function.rsplit(".", 1)[-1]


def _library(file: str) -> bool:
    return is_library(file) or file.startswith(PACKAGES) or "/torch/" in file
