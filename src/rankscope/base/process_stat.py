"""The state of a process and the moment at which it began, which with its pid names it for ever."""

from __future__ import annotations

from typing import NamedTuple


class ProcessStat(NamedTuple):
    state: str
    """The kernel's letter (`R`, `S`, `D`, `T`, `Z`, ...); `X`: there is no such process, or it cannot be seen."""
    start_ticks: int
    """Clock ticks from the machine's boot to the process's start; 0 where it is not known."""
    exit_status: int = 0
    """As `wait` would give it, of a zombie; 0 else."""


def process_stat(pid: int) -> ProcessStat:
    """What `/proc/PID/stat` says now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()  # the name before it may hold anything
        return ProcessStat(fields[0].decode(), int(fields[19]), int(fields[49]))
    except (OSError, ValueError, IndexError):
        return ProcessStat("X", 0)
