"""All processes that a command has started, however they are related to it now, and signals that reach no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankscope.base.process_stat import process_stat
from rankscope.base.rundir import ENV_RUN_DIR, RunDir, ring_folders
from rankscope.records import ring_layout


class Member(NamedTuple):
    """One process. A pid is given to another process one day; with the moment of its start it is not."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether it is there; a zombie is not."""
        state, ticks, _ = process_stat(self.pid)
        return state not in "ZX" and ticks == self.start_ticks

    def send(self, number: int) -> None:
        """Send it a signal, and never to another process that got its pid meanwhile."""
        try:
            handle = os.pidfd_open(self.pid)
        except AttributeError:
            if self.alive:
                os.kill(self.pid, number)
            return
        except OSError:
            return  # it has ended
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass  # it has ended meanwhile, or has become another user's
        finally:
            os.close(handle)


def descendants(root: int) -> Iterator[int]:
    """A process and what it started, as far as those in between are there."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(pid)
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def family(root: int | None, run: RunDir | None) -> set[Member]:
    """Every process of a run's command that is there: descendants of `root`, those with the run's environment, and
    those that were observed. (torchrun's ranks have sessions of their own, and outlive a torchrun that is killed.)"""
    pids = set(descendants(root)) if root is not None else set()
    members = set()
    if run is not None:
        mark = f"{ENV_RUN_DIR}={run.root}".encode()
        pids |= {pid for pid in _pids() if mark in _read(f"/proc/{pid}/environ").split(b"\0")}
        members = {writer for folder in ring_folders(run) for writer in _writers(folder)}
    members |= {Member(pid, process_stat(pid).start_ticks) for pid in pids - {os.getpid()}}
    return {member for member in members if member.start_ticks and member.alive}


def _writers(folder: Path) -> Iterator[Member]:
    """The processes that wrote the rings of a folder."""
    for path in folder.glob("*.ring"):
        head = _read(str(path), ring_layout.HEADER.size)
        if head.startswith(ring_layout.MAGIC) and len(head) == ring_layout.HEADER.size:
            _, pid, _, start_ticks, *_ = ring_layout.HEADER.unpack(head)
            yield Member(pid, start_ticks)


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _read(path: str, size: int = -1) -> bytes:
    """A file; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""
