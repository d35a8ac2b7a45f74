"""Reading one process's ring from outside, without ever writing to it or making it wait."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.base.process_stat import process_stat
from rankscope.records import ring_layout as layout
from rankscope.records.payload import Payload
from rankscope.records.rows import SLOT_DTYPE


class NotARing(ValueError):
    """The file is no ring, or its writer has not finished the header yet."""


@dataclass(slots=True)
class _Lane:
    number: int
    slots: NDArray[np.void]
    last: int = 0
    """Commit number of the last record taken."""


class RingReader:
    """One ring file: new records since the last call, new payloads, what was lost, whether the writer lives.

    `resume` gives the last commit number of each lane that has been acknowledged before (a restarted recorder).
    """

    def __init__(self, path: Path, resume: dict[int, int] | None = None) -> None:
        self.path = path
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < layout.LANES_START:
                raise NotARing(f"{path}: shorter than a ring's header")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, self.pid, lanes, self.start_ticks, self._payload_start, self._payload_bytes, _, _ = (
            layout.HEADER.unpack_from(self._map, 0)
        )
        if magic != layout.MAGIC or not 0 < lanes <= layout.MAX_LANES:
            raise NotARing(f"{path}: byte 0: not the header of a ring")
        self._lanes: list[_Lane] = []
        for number in range(lanes):
            offset, slots, lane, _ = layout.LANE.unpack_from(
                self._map, layout.LANE_TABLE + number * layout.LANE.size
            )
            if offset + slots * SLOT_DTYPE.itemsize > len(self._map) or slots & (slots - 1):
                raise NotARing(f"{path}: lane {number} lies outside the file")
            array = np.frombuffer(self._map, SLOT_DTYPE, slots, offset)
            self._lanes.append(_Lane(lane, array, (resume or {}).get(lane, 0)))
        self.exit_status: int | None = None
        """How the process ended, as `wait` would give it; None: it lives, or was waited for before that was asked."""
        self._payload_read = 0

    def read(self) -> tuple[list[tuple[int, NDArray[np.void]]], int]:
        """(lane, new slots in commit order) for each lane with news, and the number of slots overwritten unread."""
        news = []
        lost = 0
        for lane in self._lanes:
            slots, missed = self._read_lane(lane)
            lost += missed
            if len(slots):
                news.append((lane.number, slots))
        return news, lost

    def _read_lane(self, lane: _Lane) -> tuple[NDArray[np.void], int]:
        size = len(lane.slots)
        commits = lane.slots["commit"]
        first = int(commits[(lane.last + 1) & (size - 1)])
        if first <= lane.last:
            return lane.slots[:0], 0
        lost = 0
        if first != lane.last + 1 or int(commits[(lane.last + size) & (size - 1)]) > lane.last + size:
            # The writer has gone round: what is left are the newest `size` slots, the oldest of them may go next.
            newest = int(commits.max())
            start = max(lane.last, newest - size + 1 + size // 16)
            lost = start - lane.last
            lane.last = start
        count = self._count(commits, lane.last, size)
        numbers = np.arange(lane.last + 1, lane.last + count + 1, dtype=np.uint64)
        taken = lane.slots[(numbers & np.uint64(size - 1)).astype(np.int64)]
        whole = (taken["commit"] == numbers) & (taken["seal"] == numbers)
        good = len(taken) if whole.all() else int(np.argmin(whole))
        taken = taken[:good]
        lane.last += good
        return taken, lost

    @staticmethod
    def _count(commits: NDArray[np.uint64], last: int, size: int) -> int:
        """How many commits follow `last` without a gap: doubling steps, then halving (no scan of the whole lane)."""

        def present(k: int) -> bool:
            return int(commits[(last + k) & (size - 1)]) == last + k

        low, step = 1, 1
        while low + step <= size and present(low + step):
            low += step
            step *= 2
        while step:
            if low + step <= size and present(low + step):
                low += step
            step //= 2
        return low

    def pending(self) -> NDArray[np.void]:
        """The slot of the operation that the training thread is in, or was in last; empty where there was none."""
        slot = np.frombuffer(self._map, SLOT_DTYPE, 1, layout.PENDING).copy()
        return slot if slot["kind"][0] and slot["commit"][0] == slot["seal"][0] else slot[:0]

    def give_up_torn(self) -> int:
        """After the writer's death: skip slots that will never be finished; returns how many."""
        skipped = 0
        for lane in self._lanes:
            size = len(lane.slots)
            slot = lane.slots[(lane.last + 1) & (size - 1)]
            if int(slot["commit"]) == lane.last + 1 and int(slot["seal"]) != lane.last + 1:
                lane.last += 1
                skipped += 1
        return skipped

    def payloads(self, node: int) -> list[Payload]:
        """Names, stacks and descriptions written since the last call."""
        (written,) = layout.COUNTER.unpack_from(self._map, layout.PAYLOAD_WRITTEN)
        found = []
        while self._payload_read < min(written, self._payload_bytes):
            at = self._payload_start + self._payload_read
            length, kind, _, id = layout.ENTRY.unpack_from(self._map, at)
            text = self._map[at + layout.ENTRY.size : at + layout.ENTRY.size + length].decode("utf-8", "replace")
            found.append(Payload(node, self.pid, kind, id, text))
            self._payload_read += (layout.ENTRY.size + length + 7) // 8 * 8
        return found

    @property
    def dropped(self) -> int:
        """Records that were never written, as all lanes were other threads'."""
        (dropped,) = layout.COUNTER.unpack_from(self._map, layout.DROPPED)
        return int(dropped)

    @property
    def payloads_dropped(self) -> int:
        (dropped,) = layout.COUNTER.unpack_from(self._map, layout.PAYLOAD_DROPPED)
        return int(dropped)

    @property
    def said_goodbye(self) -> bool:
        (flag,) = layout.COUNTER.unpack_from(self._map, layout.GOODBYE)
        return bool(flag)

    def alive(self) -> bool:
        """Whether the writing process still exists (a zombie does not count, a reused pid neither)."""
        state, ticks, status = process_stat(self.pid)
        ours = not self.start_ticks or ticks == self.start_ticks
        if state == "Z" and ours:
            self.exit_status = status
        return state not in "ZX" and ours

    def close(self) -> None:
        """Let go of the mapping."""
        for lane in self._lanes:
            lane.slots = lane.slots[:0].copy()
        self._map.close()
