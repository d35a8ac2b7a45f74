"""The file that a process maps and writes, and the recorder reads: header, lane table, lanes, payload region.

    0     magic, version, pid, start time, number of lanes, payload region
    256   lane table: offset, slots, thread id of each lane
    2048  one slot: the operation that the training thread is in, or was in last
    4000  control page of counters that the writer sets: payload bytes written, records dropped, goodbye
    4096  lanes (rings of 64-byte slots), then the payload region (written once, from its start to its end)

A lane belongs to one thread, so that nobody waits for a lock. The reader never writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from rankscope.records.slot import SLOT_BYTES

MAGIC: Final = b"RSCOPE01"
HEADER: Final = struct.Struct("<8sIIqqqII")
"""magic, pid, lanes, start of the process (clock ticks since boot), payload offset, payload bytes, flags, 0."""
LANE: Final = struct.Struct("<QIIQ")
"""offset in the file, slots (a power of two), lane number, thread id (0: free)."""
LANE_TABLE: Final = 256
MAX_LANES: Final = 32
PENDING: Final = 2048
PAYLOAD_WRITTEN: Final = 4000
DROPPED: Final = 4008
PAYLOAD_DROPPED: Final = 4016
GOODBYE: Final = 4024
COUNTER: Final = struct.Struct("<Q")
LANES_START: Final = 4096
ENTRY: Final = struct.Struct("<IHHI")
"""payload entry: bytes of text, kind, 0, id; the text follows, padded to 8."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the parts of one ring file are."""

    first_lane_slots: int
    other_lanes: int
    other_lane_slots: int
    payload_bytes: int

    @property
    def file_bytes(self) -> int:
        slots = self.first_lane_slots + self.other_lanes * self.other_lane_slots
        return LANES_START + slots * SLOT_BYTES + self.payload_bytes


RANK_SIZES: Final = Sizes(first_lane_slots=16384, other_lanes=7, other_lane_slots=1024, payload_bytes=2 << 20)
"""3.5 MB: 16384 slots are 5 s of the busiest programs seen (3000 records a second); the recorder comes every 0.25 s."""
WORKER_SIZES: Final = Sizes(first_lane_slots=2048, other_lanes=1, other_lane_slots=256, payload_bytes=256 << 10)
