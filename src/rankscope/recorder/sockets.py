"""Bytes that wait in a process's TCP connections to be sent or read: which end of a slow path is the slow one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST_DUMP = 0x301
DONE, ERROR = 3, 2
ESTABLISHED = 1
HEADER = struct.Struct("<IHHII")
REQUEST = struct.Struct("<BBBxI48x")
"""family, protocol, extensions, states (a bit each), and an empty socket id: all of them."""
QUEUES_AT = 4 + 48 + 4
QUEUES = struct.Struct("<IIII")
"""bytes to be read, bytes to be sent, user, inode: in a `struct inet_diag_msg`."""
ATTRIBUTES_AT = 72
ATTRIBUTE = struct.Struct("<HH")
TCP_INFO = 2
NOT_SENT_AT = 144
"""`tcpi_notsent_bytes` in a `struct tcp_info`: without what is sent and only waits for its acknowledgement, which a
receiver may delay by 40 ms."""
COUNT = struct.Struct("<I")


class Sockets:
    """Queue lengths of the TCP connections of some processes; whose connection is whose is asked every `every` reads,
    and when other processes are meant.

    The kernel is asked over netlink: `/proc/net/tcp` says the same, but walks its whole hash table, 9 ms a time.
    """

    def __init__(self, every: int = 20) -> None:
        self._every = every
        self._reads = 0
        self._pids: list[int] = []
        self._owner: dict[int, int] = {}

    def queues(self, pids: list[int]) -> dict[int, tuple[int, int]]:
        """pid -> bytes in the send queues and in the receive queues of all its connections.

        A process without connections is left out; {} where the kernel does not answer.
        """
        if self._reads % self._every == 0 or pids != self._pids:
            self._pids, self._reads = pids, 0
            self._owner = {inode: pid for pid in pids for inode in _inodes(pid)}
        self._reads += 1
        found: dict[int, tuple[int, int]] = {}
        if not self._owner:
            return found
        with contextlib.suppress(OSError), _netlink() as netlink:
            for family in (socket.AF_INET, socket.AF_INET6):
                for unread, unsent, inode in _established(netlink, family):
                    owner = self._owner.get(inode)
                    if owner is not None:
                        before = found.get(owner, (0, 0))
                        found[owner] = before[0] + unsent, before[1] + unread
        return found


def _netlink() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    opened.settimeout(0.1)  # the kernel answers at once, or its answer was lost for want of memory
    return opened


def _established(netlink: socket.socket, family: int) -> Iterator[tuple[int, int, int]]:
    """(bytes unread, bytes unsent, inode) of every established connection of one address family."""
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (TCP_INFO - 1), 1 << ESTABLISHED)
    netlink.send(HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + request)
    while True:
        data = netlink.recv(1 << 16)
        at = 0
        while at < len(data):
            length, kind, *_ = HEADER.unpack_from(data, at)
            if kind == DONE:
                return
            if kind == ERROR:
                raise OSError("the kernel has no sock_diag")
            unread, unsent, _, inode = QUEUES.unpack_from(data, at + HEADER.size + QUEUES_AT)
            waiting = _not_sent(data, at + HEADER.size + ATTRIBUTES_AT, at + length)
            yield unread, unsent if waiting is None else waiting, inode
            at += (length + 3) & ~3


def _not_sent(data: bytes, at: int, end: int) -> int | None:
    """Bytes of a connection that have not been sent at all; None where the kernel does not say."""
    while at + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return None
        if kind == TCP_INFO and length >= ATTRIBUTE.size + NOT_SENT_AT + COUNT.size:
            (count,) = COUNT.unpack_from(data, at + ATTRIBUTE.size + NOT_SENT_AT)
            return int(count)
        at += (length + 3) & ~3
    return None


def _inodes(pid: int) -> list[int]:
    """Inodes of a process's sockets; [] where they cannot be seen."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.append(int(target[8:-1]))
    return found
