"""Where the dicts of a memory snapshot go as soon as they are complete: columns instead of objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.snapshot.values import (
    BLOCK,
    EVENT,
    NOTE,
    SEGMENT,
    FrameRef,
    Items,
    Record,
    Row,
    RowRef,
    StackRef,
)
from rankscope.records.imported.memory_snapshot import ACTIONS, ALLOCATED, INACTIVE, OTHER, PENDING, Frame

STATES: Final = {"inactive": INACTIVE, "active_allocated": ALLOCATED}
"""Anything else is still used by another stream; PyTorch writes `active_pending_free` and documents another name."""
LARGEST: Final = 1 << 62
MOST_ROWS: Final = 1 << 24
"""Of what is repeated: a short file can repeat much."""
MOST_FRAMES: Final = 1 << 22
"""Distinct lines: a process has some ten thousand."""


class Columns:
    """Rows of all devices, in the order of the file; interned frames and stacks."""

    def __init__(self) -> None:
        self.action, self.stack = array("B"), array("i")
        self.address, self.size, self.time_us = array("q"), array("q"), array("q")
        self.block_address, self.block_size, self.block_requested = array("q"), array("q"), array("q")
        self.block_state, self.block_stack = array("B"), array("i")
        self.segment_address, self.segment_size, self.segment_blocks = array("q"), array("q"), array("q")
        self.segment_device, self.segment_pool = array("q"), array("i")
        self.segment_expandable = array("B")
        self.frames: list[Frame] = []
        self.stack_start, self.stack_frames = array("q", [0]), array("i")
        self.annotations: list[tuple[int, int, str, bool]] = []
        """(time in µs, device, name, it begins)."""
        self._frames: dict[Frame, FrameRef] = {}
        self._stacks: dict[tuple[int, ...], StackRef] = {}
        self._pools: dict[tuple[object, ...], int] = {}

    def take(self, record: Record) -> object | None:
        """What stands for a dict that is complete; None where it is none of a snapshot's rows."""
        if "action" in record:
            return self._event(record)
        if "filename" in record and "name" in record:
            return self._frame(record)
        if "total_size" in record:
            return self._segment(record)
        if "state" in record and "size" in record:
            return self._block(record)
        if "time_us" in record and "name" in record:
            self._annotation(record)
            return NOTE
        return None

    def stack_ref(self, frames: Iterable[object]) -> StackRef | None:
        """The stack of these frames; None where one of them is something else."""
        numbers = []
        for frame in frames:
            if not isinstance(frame, FrameRef):
                return None
            numbers.append(frame.number)
        key = tuple(numbers)
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = StackRef(len(self.stack_start) - 1)
            self.stack_frames.extend(key)
            self.stack_start.append(len(self.stack_frames))
        return found

    def event(self, action: str, address: int, size: int, time_us: int, stack: int) -> None:
        """One more event; its numbers have been checked."""
        self.action.append(ACTIONS.get(action, OTHER))
        self.address.append(address)
        self.size.append(size)
        self.time_us.append(time_us)
        self.stack.append(stack)

    def last(self, kind: Row) -> object:
        """What the memo remembers of the newest row of a kind."""
        if kind is NOTE:
            return NOTE
        if kind is EVENT:
            return len(self.action) - 1
        return RowRef(kind, len(self.block_size if kind is BLOCK else self.segment_size) - 1)

    def again(self, kind: Row, number: int) -> Row:
        """Appends a row once more: the file refers to it in a second place."""
        columns: tuple[array[int], ...] = (self.action, self.address, self.size, self.time_us, self.stack)
        if kind is BLOCK:
            columns = (self.block_address, self.block_size, self.block_requested, self.block_state, self.block_stack)
        elif kind is SEGMENT:
            first = sum(self.segment_blocks[:number])
            for block in range(first, first + self.segment_blocks[number]):
                self.again(BLOCK, block)
            columns = (self.segment_address, self.segment_size, self.segment_blocks, self.segment_device)
            columns += (self.segment_pool, self.segment_expandable)
        if len(columns[0]) > MOST_ROWS:
            raise Unreadable(f"has more than {MOST_ROWS:,} {kind.kind}s")
        for column in columns:
            column.append(column[number])
        return kind

    def list_again(self, items: Items) -> Items:
        """A list of rows that the file refers to in a second place."""
        copy = Items()
        copy.events, copy.blocks, copy.segments = items.events, items.blocks, items.segments
        kind = EVENT if items.events else BLOCK if items.blocks else SEGMENT
        copy.first = len(self.action if kind is EVENT else self.block_size if kind is BLOCK else self.segment_size)
        for number in range(items.first, items.first + (items.events or items.blocks or items.segments)):
            self.again(kind, number)
        return copy

    def _event(self, record: Record) -> object:
        action = record["action"]
        if not isinstance(action, str):
            raise Unreadable(f"an event's action is {type(action).__name__}, not a name")
        # 2.0 keeps the bytes that the device had free where others have an address.
        address = record.get("device_free", 0) if action == "oom" else record.get("addr", 0)
        self.event(
            action,
            _number(address, "addr"),
            _number(record.get("size", 0), "size"),
            _number(record.get("time_us", -1), "time_us"),
            self._stack(record.get("frames")),
        )
        return EVENT

    def _frame(self, record: Record) -> object:
        line = record.get("line")
        frame = Frame(str(record["filename"]), line if isinstance(line, int) else 0, str(record["name"]))
        found = self._frames.get(frame)
        if found is None:
            if len(self.frames) >= MOST_FRAMES:
                raise Unreadable(f"has more than {MOST_FRAMES:,} different lines in its stacks")
            found = self._frames[frame] = FrameRef(len(self.frames))
            self.frames.append(frame)
        return found

    def _stack(self, value: object) -> int:
        if isinstance(value, StackRef):
            return value.number
        if isinstance(value, Items):
            found = self.stack_ref(value)
            if found is not None:
                return found.number
        return -1

    def _block(self, record: Record) -> object:
        history = record.get("history")  # PyTorch 2.0 and before
        last = history[0] if isinstance(history, Items) and history else None
        stack, requested = record.get("frames"), record.get("requested_size", record["size"])
        if isinstance(last, Record):
            stack, requested = stack or last.get("frames"), last.get("real_size", requested)
        self.block_address.append(_number(record.get("address", -1), "address"))
        self.block_size.append(_number(record["size"], "size"))
        self.block_requested.append(_number(requested, "requested_size"))
        state = record["state"]
        self.block_state.append(STATES.get(state, PENDING) if isinstance(state, str) else PENDING)
        self.block_stack.append(self._stack(stack))
        return BLOCK

    def _segment(self, record: Record) -> object:
        blocks = record.get("blocks")
        self.segment_address.append(_number(record.get("address", 0), "address"))
        self.segment_size.append(_number(record["total_size"], "total_size"))
        self.segment_blocks.append(blocks.blocks if isinstance(blocks, Items) else 0)
        self.segment_device.append(_number(record.get("device", 0), "device"))
        self.segment_pool.append(self._pool(record.get("segment_pool_id", (0, 0))))
        self.segment_expandable.append(1 if record.get("is_expandable") is True else 0)
        return SEGMENT

    def _pool(self, pool: object) -> int:
        if not isinstance(pool, tuple) or not all(isinstance(part, int) for part in pool):
            return 0
        return 0 if pool == (0, 0) else self._pools.setdefault(pool, len(self._pools) + 1)

    def _annotation(self, record: Record) -> None:
        device = record.get("device", 0)
        self.annotations.append(
            (
                _number(record["time_us"], "time_us"),
                device if isinstance(device, int) else 0,
                str(record["name"]),
                str(record.get("stage", "START")).upper() != "END",
            )
        )


def _number(value: object, name: str) -> int:
    if not isinstance(value, int) or not -LARGEST < value < LARGEST:
        raise Unreadable(f"{name} is {str(value)[:40]!r}, not a number of bytes, an address or a time")
    return value
