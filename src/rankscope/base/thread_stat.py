"""What `/proc` tells of one thread of another process: whether it runs, how long it has, and what it waits in."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import NamedTuple

SYSTEM_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 23: "select", 35: "nanosleep", 43: "accept",
        45: "recvfrom", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
        202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll",
        281: "epoll_pwait",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 32: "flock", 63: "read", 64: "write", 67: "pread64", 68: "pwrite64",
        72: "pselect6", 73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 202: "accept", 207: "recvfrom", 212: "recvmsg", 260: "wait4",
    },
}  # fmt: skip
"""Machine -> number -> name of the calls that a thread can wait in for long."""
WAITED_FOR = {
    "futex": "a lock", "read": "a file or a pipe", "write": "a file or a pipe", "pread64": "a file",
    "pwrite64": "a file", "poll": "connections or pipes", "ppoll": "connections or pipes",
    "select": "connections or pipes", "pselect6": "connections or pipes", "epoll_wait": "connections or pipes",
    "epoll_pwait": "connections or pipes", "nanosleep": "the end of a sleep", "clock_nanosleep": "the end of a sleep",
    "accept": "a connection", "recvfrom": "a connection", "recvmsg": "a connection", "wait4": "another process",
    "waitid": "another process", "fcntl": "a file lock", "flock": "a file lock", "fsync": "a disk",
    "fdatasync": "a disk",
}  # fmt: skip
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
NO_PLACE = ("", "0", "do_syscall_64", "invoke_syscall", "el0_svc_common")
"""What `wchan` says where the kernel does not tell, or only that it is in a system call."""


class ThreadStat(NamedTuple):
    state: str
    """The kernel's letter; `X`: there is no such thread, or it cannot be seen."""
    cpu_ns: int
    """CPU time that it has used."""


def thread_stat(pid: int, tid: int) -> ThreadStat:
    """State and CPU time of a thread now."""
    folder = Path(f"/proc/{pid}/task/{tid}")
    try:
        fields = (folder / "stat").read_bytes().rsplit(b")", 1)[1].split()
        state, cpu_ns = fields[0].decode(), (int(fields[11]) + int(fields[12])) * TICK_NS
    except (OSError, ValueError, IndexError):
        return ThreadStat("X", 0)
    try:
        return ThreadStat(state, int((folder / "schedstat").read_bytes().split()[0]))
    except (OSError, ValueError, IndexError):  # a kernel without scheduler statistics
        return ThreadStat(state, cpu_ns)


def waits_in(pid: int, tid: int) -> str:
    """What a sleeping thread waits in (`futex: a lock`); "" where it runs or the kernel does not tell this user."""
    folder = Path(f"/proc/{pid}/task/{tid}")
    try:
        number = (folder / "syscall").read_text(encoding="ascii").split()[0]
        name = SYSTEM_CALLS.get(platform.machine(), {}).get(int(number), "")
        if name:
            return f"{name}: {WAITED_FOR[name]}"
    except (OSError, ValueError, IndexError):
        pass  # `running`, or not allowed; `wchan` may be told all the same
    try:
        place = (folder / "wchan").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return place if place not in NO_PLACE else ""


def status_number(pid: int, field: str, tid: int | None = None) -> int:
    """The last number in a line of a process's or a thread's `status`: `TracerPid`, `PPid`, or of `NSpid` that in its
    own namespace. 0: not known."""
    path = Path(f"/proc/{pid}/status" if tid is None else f"/proc/{pid}/task/{tid}/status")
    try:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        pass  # it has ended, or an old kernel has no such line
    return 0


def thread_numbers(pid: int) -> dict[int, int]:
    """Of a process in a PID namespace of its own: a thread's number there -> its number here; {} of any other."""
    if status_number(pid, "NSpid") in (0, pid):
        return {}
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (OSError, ValueError):
        return {}
    return {status_number(pid, "NSpid", tid): tid for tid in tids}
