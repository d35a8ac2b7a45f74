"""Where user code was, from the stack samples: places, stacks, and what the training loop calls."""

from __future__ import annotations

import os
from collections import Counter as Counted
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.tables import Tables, column
from rankscope.base.user_code import is_library, is_torch
from rankscope.records.host import StackSample
from rankscope.records.process import Process

USUAL_GAP_NS = 50_000_000
"""Between two samples at 20 Hz: what the first one stands for."""
LONGEST_GAP_NS = 1_000_000_000
"""No sample stands for more: a sampler that did not run knows nothing of the time before."""

Code = tuple[str, str]
"""File and function: the same for all lines of one function."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code."""

    file: str
    line: int
    function: str

    @property
    def short(self) -> str:
        """`f (train.py:41)`."""
        return f"{self.function} ({os.path.basename(self.file)}:{self.line})"

    @property
    def code(self) -> Code:
        return self.file, self.function


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack, outermost frame first."""

    frames: tuple[Place, ...]
    libraries: tuple[str, ...] = ()
    """Folders of torch and Python in its process."""
    torch: str = ""
    """The folder of torch in its process; empty: not known."""

    @property
    def user(self) -> tuple[Place, ...]:
        """Frames of the user's code."""
        return tuple(f for f in self.frames if self.is_user(f))

    def is_user(self, frame: Place) -> bool:
        """Whether one of its frames is the user's code."""
        return is_user(frame.file, self.libraries)

    @property
    def ends_in_torch(self) -> bool:
        """Whether torch's Python code is what runs."""
        return bool(self.frames) and is_torch(self.frames[-1].file, self.torch)


@dataclass(slots=True)
class Samples:
    """Samples of one process in time order."""

    time_ns: NDArray[np.int64]
    stack: list[Stack]
    weight_ns: NDArray[np.int64]
    """Time that the sample stands for: since the sample before it, at most LONGEST_GAP_NS."""
    cpu_ns: NDArray[np.int64]
    """CPU time of the thread since the sample before it."""

    def __len__(self) -> int:
        return len(self.time_ns)


@lru_cache(maxsize=65536)
def parse_place(text: str) -> Place:
    """A place from `file:line:function`."""
    head, _, function = text.rpartition(":")
    file, _, line = head.rpartition(":")
    return Place(file, int(line) if line.isdigit() else 0, function)


def parse_class_place(text: str) -> tuple[str, Place | None]:
    """Class and place of its forward from `Class|file:line`, as deep records name a module's class."""
    name, _, where = text.partition("|")
    file, _, line = where.rpartition(":")
    return name, Place(file, int(line), f"{name}.forward") if file and line.isdigit() else None


@lru_cache(maxsize=65536)
def is_user(file: str, libraries: tuple[str, ...] = ()) -> bool:
    """Whether a file is the user's. `libraries`: the folders of torch and Python in the process that ran it."""
    return not is_library(file, libraries)


def read_samples(tables: Tables, pid: int) -> Samples:
    """All samples of one process."""
    rows = tables.of(StackSample)
    rows = rows[rows["process"] == pid]
    time_ns = rows["time_ns"].astype(np.int64)
    ids = column(rows, StackSample, "stack")
    cpu = column(rows, StackSample, "cpu_ns").astype(np.int64)
    process = tables.processes.get(pid, Process(pid))
    libraries = process.library_folders
    known: dict[int, Stack] = {}
    for id in np.unique(ids).tolist():
        frames = tables.stacks.get(pid, {}).get(id, ())
        places = tuple(parse_place(tables.name(pid, f)) for f in reversed(frames))
        known[id] = Stack(places, libraries, process.torch_folder)
    gaps = np.diff(time_ns, prepend=time_ns[:1] - USUAL_GAP_NS)
    used = np.diff(cpu, prepend=cpu[:1])
    return Samples(time_ns, [known[i] for i in ids.tolist()], np.minimum(gaps, LONGEST_GAP_NS), np.maximum(used, 0))


def spine(stacks: Iterable[Stack]) -> set[Code]:
    """The functions that make up the training loop: user frames outside of any library call, in stacks taken while
    backward or the optimizer ran."""
    found: set[Code] = set()
    for stack in stacks:
        for frame in stack.frames:
            if stack.is_user(frame):
                found.add(frame.code)
            elif frame.function != "<module>" and found and not _is_wrapper(frame):
                break
    return found


def _is_wrapper(frame: Place) -> bool:
    """Launchers and decorators stand between user frames without being the library call that does the work."""
    name = os.path.basename(frame.file)
    return name in ("contextlib.py", "_contextlib.py", "runpy.py", "spawn.py", "process.py", "__init__.py")


def activity(stack: Stack, loop: set[Code]) -> Place | None:
    """What the training loop is doing: the first user function that is not of the loop (at its own line), else the
    loop's own innermost line. None where no user frame is on the stack."""
    last: Place | None = None
    for frame in stack.user:
        if frame.code not in loop:
            return frame
        last = frame
    return last


def innermost_user(stack: Stack) -> Place | None:
    """The deepest line of user code."""
    user = stack.user
    return user[-1] if user else None


def hottest(places: Iterable[tuple[Place, int]]) -> tuple[Place, float] | None:
    """The function with the most weight, at its heaviest line, and its share of all weight."""
    by_function: Counted[Code] = Counted()
    by_line: Counted[Place] = Counted()
    total = 0
    for place, weight in places:
        by_function[place.code] += weight
        by_line[place] += weight
        total += weight
    if not total:
        return None
    code, weight = by_function.most_common(1)[0]
    line = max((place for place in by_line if place.code == code), key=lambda p: by_line[p])
    return line, weight / total
