"""Threads as they are found in a dump, one process after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from rankscope.records.imported.stack_dump import StackFrame, ThreadStack

MOST_THREADS: Final = 200_000
MOST_FRAMES: Final = 512
"""Innermost frames of a thread; deeper ones are recursions."""


@dataclass(slots=True)
class Threads:
    """What was read so far."""

    done: list[ThreadStack] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    process: int = -1
    pid: int | None = None
    rank: int | None = None
    heading: int | None = None
    """Rank that a line named for the process that comes."""
    crashed: bool = False
    """faulthandler writes a process that crashes in another order: the thread at fault first."""
    _frames: list[StackFrame] | None = None
    _head: ThreadStack | None = None

    def next_process(self, pid: int | None, rank: int | None, *, crashed: bool = False) -> None:
        """Begins a process; without a rank of its own it has that of the heading before it."""
        self.close()
        self.process += 1
        self.pid, self.rank = pid, rank if rank is not None else self.heading
        self.heading, self.crashed = None, crashed

    def complete(self, *, current: bool) -> bool:
        """Whether the next thread must be of another process: the main one, which is last, has been."""
        self.close()
        if self.heading is not None:
            return True
        mine = [t for t in self.done[-64:] if t.process == self.process]
        if self.crashed or not mine:
            return False
        return mine[-1].frames[-1].function == "<module>" or (current and any(t.current for t in mine))

    def thread(self, name: str, *, current: bool, active: bool | None) -> None:
        """Begins a thread of the process."""
        self.close()
        self.process = max(self.process, 0)
        if len(self.done) < MOST_THREADS:
            self._head = ThreadStack(self.process, self.pid, self.rank, name, name == "MainThread", current, active, ())
            self._frames = []

    def frame(self, file: str, line: int, function: str) -> None:
        if self._frames is not None and len(self._frames) < MOST_FRAMES:
            self._frames.append(StackFrame(file, line, function))

    def close(self) -> None:
        """Ends the thread that is being read."""
        if self._head is not None and self._frames:
            self.done.append(replace(self._head, frames=tuple(self._frames)))
        self._head = self._frames = None

    @property
    def open(self) -> bool:
        return self._head is not None

    def threads(self) -> tuple[ThreadStack, ...]:
        """All of them; where no name says which is the main one, the stack that begins in `<module>` or was last."""
        self.close()
        named = {t.process for t in self.done if t.main}
        made = []
        for t in self.done:
            main = t.main or (t.process not in named and t.frames[-1].function in ("<module>", "_run_module_as_main"))
            made.append(replace(t, main=main))
        have = {t.process for t in made if t.main}
        last = {t.process: i for i, t in enumerate(made)}  # faulthandler writes the main thread last
        return tuple(
            replace(t, main=True) if t.process not in have and last[t.process] == i else t for i, t in enumerate(made)
        )
