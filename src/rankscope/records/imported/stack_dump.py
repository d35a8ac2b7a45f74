"""Stacks of Python threads at one moment, taken from outside (py-spy) or written by the process (faulthandler)."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class StackFrame:
    file: str
    """As the tool wrote it; py-spy shortens it."""
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class ThreadStack:
    process: int
    """Number of the process in the file, from 0, in the file's order."""
    pid: int | None
    rank: int | None
    """As the file says beside the process; None where it does not."""
    name: str
    main: bool
    """The thread that runs the program: by its name, or the only one that begins in `<module>`."""
    current: bool
    """The one that got the signal (faulthandler), or holds the interpreter lock (py-spy)."""
    active: bool | None
    """Whether it was running; None where the tool does not say."""
    frames: tuple[StackFrame, ...]
    """Innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump(Table):
    """One file, with one process or several."""

    threads: tuple[ThreadStack, ...]
    fatal: tuple[str, ...]
    """`Segmentation fault` and the like, of each process in which faulthandler names one."""
