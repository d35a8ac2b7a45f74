"""CUDA memory snapshots."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.artefacts.snapshot.columns import Columns
from rankscope.artefacts.snapshot.machine import Machine
from rankscope.artefacts.snapshot.values import Items, Record
from rankscope.records.imported import memory_snapshot as table
from rankscope.records.imported.table import Table

KEYS: Final = (b"device_traces", b"allocator_settings", b"segment_type", b"segment_pool_id", b"active_size")
"""Names of the format, of which the first pages hold one whatever its version."""
PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
MOST_DEVICES: Final = 1024


class MemorySnapshot(Reader):
    """`torch.cuda.memory._dump_snapshot` of PyTorch 2.0 to 2.13, the pickles of its C++ side, those of XPU and NPU
    builds, and the bare list of segments of `torch.cuda.memory_snapshot`. Read by opcode: nothing in it is executed."""

    name = "memory snapshot"
    certainty = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        return PICKLE.match(head) is not None and any(key in head for key in KEYS)

    def read(self, path: Path) -> Iterator[Table]:
        try:
            with opened(path) as stream:
                machine = Machine(stream)
                root = machine.run()
            segments, traces, settings = _parts(root)
            yield from _tables(str(path), machine.columns, segments, traces, settings)
        except OverflowError as error:  # of a column of 64 bits: an address or a size cannot be that large
            raise Unreadable(f"an address, size or time is beyond 64 bits ({error})") from error


def _parts(root: object) -> tuple[int, list[int], dict[str, str]]:
    """(segments, events of each device, settings)."""
    if isinstance(root, Items) and (root.segments or not root):
        return root.segments, [], {}
    if isinstance(root, Record) and not ("segments" in root or "device_traces" in root):
        # What wraps it: {"snapshot": {...}, "rank": 3}.
        root = next((v for v in root.values() if isinstance(v, Record) and "segments" in v), root)
    if not isinstance(root, Record) or not ("segments" in root or "device_traces" in root):
        raise Unreadable("is a pickle without `segments` and `device_traces`: no memory snapshot")
    segments, traces, settings = root.get("segments"), root.get("device_traces"), root.get("allocator_settings")
    events = [item.events if isinstance(item, Items) else 0 for item in traces] if isinstance(traces, Items) else []
    if len(events) > MOST_DEVICES:
        raise Unreadable(f"names {len(events):,} devices")
    plain = {
        str(key): str(value)
        for key, value in (settings.items() if isinstance(settings, Record) else ())
        if isinstance(value, (str, int, float))
    }
    return segments.segments if isinstance(segments, Items) else 0, events, plain


def _tables(
    file: str, columns: Columns, segments: int, events: list[int], settings: dict[str, str]
) -> Iterator[table.MemorySnapshot]:
    if sum(events) != len(columns.action) or segments != len(columns.segment_size):
        raise Unreadable(
            f"has {len(columns.action):,} events and {len(columns.segment_size):,} segments, of which only "
            f"{sum(events):,} and {segments:,} stand where they belong"
        )
    if sum(columns.segment_blocks) != len(columns.block_size):
        raise Unreadable("has blocks that belong to no segment")
    ends = [0, *accumulate(events)]
    devices = {number for number, count in enumerate(events) if count} | set(columns.segment_device)
    for device in sorted(devices) or [0]:
        first, last = (ends[device], ends[device + 1]) if 0 <= device < len(events) else (0, 0)
        yield _table(file, device, columns, slice(first, last), settings)


def _table(file: str, device: int, columns: Columns, rows: slice, settings: dict[str, str]) -> table.MemorySnapshot:
    owner = np.repeat(np.arange(len(columns.segment_size)), _ints(columns.segment_blocks))
    mine = _ints(columns.segment_device) == device
    numbers = np.cumsum(mine) - 1
    blocks = mine[owner]
    time_us = _ints(columns.time_us)[rows]
    notes = sorted((t, name, starts) for t, where, name, starts in columns.annotations if where == device)
    return table.MemorySnapshot(
        file=file,
        rank=file_rank(file),
        device=device,
        action=np.frombuffer(columns.action, np.uint8)[rows],
        address=_ints(columns.address)[rows],
        size=_ints(columns.size)[rows],
        time_ns=np.where(time_us >= 0, time_us * 1000, -1),
        stack=np.frombuffer(columns.stack, np.int32)[rows],
        block_address=_block_addresses(columns, owner)[blocks],
        block_size=_ints(columns.block_size)[blocks],
        block_requested=_ints(columns.block_requested)[blocks],
        block_state=np.frombuffer(columns.block_state, np.uint8)[blocks],
        block_segment=numbers[owner[blocks]].astype(np.int32),
        block_stack=np.frombuffer(columns.block_stack, np.int32)[blocks],
        segment_address=_ints(columns.segment_address)[mine],
        segment_size=_ints(columns.segment_size)[mine],
        segment_pool=np.frombuffer(columns.segment_pool, np.int32)[mine],
        segment_expandable=np.frombuffer(columns.segment_expandable, np.uint8)[mine].astype(bool),
        frames=tuple(columns.frames),
        stack_start=_ints(columns.stack_start),
        stack_frames=np.frombuffer(columns.stack_frames, np.int32),
        annotation_time_ns=np.array([t * 1000 for t, _, _ in notes], np.int64),
        annotation_name=tuple(name for _, name, _ in notes),
        annotation_starts=np.array([starts for _, _, starts in notes], bool),
        settings=settings,
    )


def _block_addresses(columns: Columns, owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """[block] its address; before PyTorch 2.1 it follows from the segment's and the sizes of the blocks before."""
    written, sizes = _ints(columns.block_address), _ints(columns.block_size)
    before = np.cumsum(sizes) - sizes
    starts = np.searchsorted(owner, np.arange(len(columns.segment_size)))
    first = before[np.minimum(starts, max(0, len(before) - 1))] if len(before) else np.zeros(len(starts), np.int64)
    computed = _ints(columns.segment_address)[owner] + before - first[owner]
    return np.where(written >= 0, written, computed)


def _ints(column: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(column, np.int64)
