"""The state and the history of PyTorch's caching allocator for one device, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM, SNAPSHOT = range(9)
ACTIONS: Final = {
    "alloc": ALLOC,
    "free_requested": FREE_REQUESTED,
    "free_completed": FREE_COMPLETED,
    "segment_alloc": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE,
    "segment_map": SEGMENT_MAP,
    "segment_unmap": SEGMENT_UNMAP,
    "oom": OOM,
    "snapshot": SNAPSHOT,
}
"""As PyTorch 2.0 to 2.13 name what its allocator did, and the number of each here."""
OTHER: Final = len(ACTIONS)
"""An action that is none of these; counted, not used."""

INACTIVE, ALLOCATED, PENDING = range(3)
"""States of a block: free for use; held by a tensor; given back, but another stream still uses it."""


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot(Table):
    """A dump of `torch.cuda.memory._dump_snapshot`, of one of its devices.

    Events: what the allocator did, oldest first; empty where no history was recorded. Their sizes are as asked for,
    those of blocks are rounded up. Segments are pieces got from the driver, blocks the pieces that they are cut into.
    """

    device: int
    action: NDArray[np.uint8]
    """[event] a number of `ACTIONS`, or `OTHER`."""
    address: NDArray[np.int64]
    """[event] of what was taken or given back; of an `oom` the bytes that the device had free."""
    size: NDArray[np.int64]
    """[event] bytes, as asked for."""
    time_ns: NDArray[np.int64]
    """[event] wall clock; -1: not recorded (before PyTorch 2.1)."""
    stack: NDArray[np.int32]
    """[event] where it came from; -1: not recorded. An empty stack is one as well: of a thread without Python."""
    block_address: NDArray[np.int64]
    block_size: NDArray[np.int64]
    """[block] bytes, rounded up."""
    block_requested: NDArray[np.int64]
    """[block] bytes, as asked for; of a free block those of its last use."""
    block_state: NDArray[np.uint8]
    """[block] `INACTIVE`, `ALLOCATED`, `PENDING`."""
    block_segment: NDArray[np.int32]
    """[block] the segment that it is a piece of."""
    block_stack: NDArray[np.int32]
    """[block] where it was allocated; -1: not recorded."""
    segment_address: NDArray[np.int64]
    segment_size: NDArray[np.int64]
    """[segment] bytes."""
    segment_pool: NDArray[np.int32]
    """[segment] 0: the pool of everybody; others are private ones (CUDA graphs, `torch.cuda.MemPool`)."""
    segment_expandable: NDArray[np.bool_]
    frames: tuple[Frame, ...]
    """All frames of the file, each once."""
    stack_start: NDArray[np.int64]
    """[stack + 1] where each stack begins in `stack_frames`."""
    stack_frames: NDArray[np.int32]
    """Numbers of frames, innermost first."""
    annotation_time_ns: NDArray[np.int64]
    annotation_name: tuple[str, ...]
    """[annotation] ranges that the user marked, in order of time; empty in most files."""
    annotation_starts: NDArray[np.bool_]
    """[annotation] it begins here, rather than ends."""
    settings: dict[str, str]
    """The allocator's settings by name; empty where they are not in the file."""

    def stack_of(self, number: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; none for -1."""
        if number < 0:
            return ()
        numbers = self.stack_frames[self.stack_start[number] : self.stack_start[number + 1]]
        return tuple(self.frames[n] for n in numbers.tolist())
