"""Bytes that wait in a process's TCP connections to be sent or read: which end of a slow path is the slow one."""

from __future__ import annotations

import os

ESTABLISHED = "01"


class Sockets:
    """Queue lengths of the TCP connections of some processes, from `/proc`; finding them is done every `every` reads."""

    def __init__(self, every: int = 20) -> None:
        self._every = every
        self._reads = 0
        self._owner: dict[str, int] = {}

    def queues(self, pids: list[int]) -> dict[int, tuple[int, int]]:
        """pid -> bytes in the send queues and in the receive queues of all its connections.

        A process without connections is left out.
        """
        if self._reads % self._every == 0:
            self._owner = {inode: pid for pid in pids for inode in _inodes(pid)}
        self._reads += 1
        if not self._owner:
            return {}
        found: dict[int, tuple[int, int]] = {}
        for family in ("tcp", "tcp6"):
            try:
                with open(f"/proc/net/{family}", encoding="ascii") as file:
                    lines = file.readlines()[1:]
            except OSError:
                continue
            for line in lines:
                fields = line.split(None, 10)
                owner = self._owner.get(fields[9])
                if owner is not None and fields[3] == ESTABLISHED:
                    unsent, _, unread = fields[4].partition(":")
                    before = found.get(owner, (0, 0))
                    found[owner] = before[0] + int(unsent, 16), before[1] + int(unread, 16)
        return found


def _inodes(pid: int) -> list[str]:
    """Inodes of a process's sockets; [] where they cannot be seen."""
    found = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(entry.path)
            except OSError:
                continue
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:
        pass
    return found
