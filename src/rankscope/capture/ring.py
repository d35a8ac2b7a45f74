"""The ring of one process: fixed-size records into a mapped file, one lane a thread, no lock, no system call."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.base.process_stat import process_stat
from rankscope.records import ring_layout as layout
from rankscope.records.slot import SLOT, SLOT_BYTES

Put = Callable[[int, int, int, int, int, int, int, int], None]
"""put(time_ns, duration_ns, kind, name, step, a, b, c)"""


@dataclass(frozen=True, slots=True)
class _Lane:
    number: int
    start: int
    slots: int
    put: Put
    """Counts its commits: they go on where the thread before has stopped."""


class _Lease:
    """One thread's use of a lane; lies in the thread's own storage, and with that comes to its end."""

    __slots__ = ("_free", "lane")

    def __init__(self, free: list[_Lane], lane: _Lane) -> None:
        self._free = free
        self.lane = lane

    def __del__(self) -> None:
        # No lock: a garbage collection may come here while this very thread holds it. An append is one operation.
        self._free.append(self.lane)


class Ring:
    """Create the file and hand out one `Put` a thread.

    The whole file is allocated before it is mapped: in a full /dev/shm a write to a sparse page would
    kill the user's process with SIGBUS. Raises OSError where there is no room.
    """

    def __init__(self, path: Path, sizes: layout.Sizes = layout.RANK_SIZES) -> None:
        self.path = path
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, sizes.file_bytes)
            self._map = mmap.mmap(file, sizes.file_bytes)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        self._lock = threading.Lock()
        self._free: list[_Lane] = []
        self._local = threading.local()
        offset = layout.LANES_START
        lanes = [sizes.first_lane_slots] + [sizes.other_lane_slots] * sizes.other_lanes
        for number, slots in enumerate(lanes):
            self._free.append(_Lane(number, offset, slots, self._make_put(offset, slots)))
            self._lease(self._free[-1], 0)
            offset += slots * SLOT_BYTES
        self._payload_start = offset
        self._payload_bytes = sizes.payload_bytes
        self._payload_written = 0
        self._dropped = 0
        self._payload_dropped = 0
        # The magic comes last: a reader that sees it sees a complete header.
        began = process_stat(os.getpid()).start_ticks
        header = (b"\0" * 8, os.getpid(), len(lanes), began, offset, sizes.payload_bytes, 0, 0)
        layout.HEADER.pack_into(self._map, 0, *header)
        self._map[0:8] = layout.MAGIC

    def lane(self) -> Put:
        """The calling thread's own lane; with no lane free, records are dropped and counted.

        When the thread ends, its lane goes on as another thread's.
        """
        lease: _Lease | None = getattr(self._local, "lease", None)
        if lease is None:
            with self._lock:
                lane = self._free.pop(0) if self._free else None
            if lane is None:
                return self._drop
            self._lease(lane, threading.get_native_id())
            lease = self._local.lease = _Lease(self._free, lane)
        return lease.lane.put

    @property
    def pending(self) -> Put:
        """A put into the one slot for an operation that may never return; its own record follows when it has."""
        pack, view, at = SLOT.pack_into, self._map, layout.PENDING

        def pending(time_ns: int, duration_ns: int, kind: int, name: int, step: int, a: int, b: int, c: int) -> None:  # noqa: PLR0917
            pack(view, at, time_ns, time_ns, duration_ns, kind, name, step, a, b, c, time_ns)

        return pending

    def payload(self, kind: int, id: int, text: str) -> None:
        """Append one name, stack or description; dropped and counted when the region is full."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            start = self._payload_written
            end = start + (layout.ENTRY.size + len(data) + 7) // 8 * 8
            if end > self._payload_bytes:
                self._payload_dropped += 1
                layout.COUNTER.pack_into(self._map, layout.PAYLOAD_DROPPED, self._payload_dropped)
                return
            at = self._payload_start + start
            layout.ENTRY.pack_into(self._map, at, len(data), kind, 0, id)
            self._map[at + layout.ENTRY.size : at + layout.ENTRY.size + len(data)] = data
            self._payload_written = end
            layout.COUNTER.pack_into(self._map, layout.PAYLOAD_WRITTEN, end)

    def goodbye(self) -> None:
        """Tell the recorder that the process ends by itself."""
        layout.COUNTER.pack_into(self._map, layout.GOODBYE, 1)

    def _lease(self, lane: _Lane, thread: int) -> None:
        at = layout.LANE_TABLE + lane.number * layout.LANE.size
        layout.LANE.pack_into(self._map, at, lane.start, lane.slots, lane.number, thread)

    def _make_put(self, start: int, slots: int) -> Put:
        pack, view, mask, shift = SLOT.pack_into, self._map, slots - 1, SLOT_BYTES.bit_length() - 1
        commit = 0

        def put(time_ns: int, duration_ns: int, kind: int, name: int, step: int, a: int, b: int, c: int) -> None:  # noqa: PLR0917
            nonlocal commit
            # A garbage collection or signal handler that runs in here writes a slot of its own: `mine` stays ours.
            mine = commit = commit + 1
            pack(view, start + ((mine & mask) << shift), mine, time_ns, duration_ns, kind, name, step, a, b, c, mine)

        return put

    def _drop(self, *_: int) -> None:
        self._dropped += 1
        layout.COUNTER.pack_into(self._map, layout.DROPPED, self._dropped)

