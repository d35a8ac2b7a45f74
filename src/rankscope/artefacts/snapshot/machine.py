"""A pickle machine that knows plain values only: nothing that a file says is ever imported or called."""

from __future__ import annotations

import pickletools
import struct
from typing import BinaryIO, Final

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.snapshot.columns import Columns
from rankscope.artefacts.snapshot.templates import Templates
from rankscope.artefacts.snapshot.values import BLOCK, EVENT, SEGMENT, Items, Record, Row, RowRef, StackRef

PIECE: Final = 4 << 20
"""Bytes that are read at a time."""
AHEAD: Final = 1 << 16
"""Bytes that have to be there before an opcode or a whole event is looked at; a stack of 1,000 frames takes 5,000."""
LONGEST_TEXT: Final = 1 << 24
MOST_KEPT: Final = 4_000_000
"""Values in lists and dicts that are no rows: a snapshot has some hundred thousand, in its stacks."""
DEEPEST: Final = 1 << 24
"""Values on the stack. PyTorch's own pickler puts all events of a device there before it makes a list of them."""
MOST_REMEMBERED: Final = 1 << 26
MOST_TEXT: Final = 1 << 28
"""Bytes of all texts together."""
TEXTS: Final = {0x8C: ("<B", 1), 0x58: ("<I", 4), 0x8D: ("<Q", 8)}
BYTES: Final = {0x43: ("<B", 1), 0x42: ("<I", 4), 0x8E: ("<Q", 8), 0x55: ("<B", 1), 0x54: ("<i", 4)}
NAMES: Final = {ord(op.code): op.name for op in pickletools.opcodes}
CALLS: Final = frozenset(b"ciobRQP\x81\x82\x83\x84\x92\x93")
"""Opcodes by which a pickle imports, calls or asks for something."""
MARK: Final = object()


class Machine:
    """Reads one pickle of a memory snapshot into `columns`.

    Memory grows with the columns and the different stacks, not with the file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.columns = Columns()
        self._stream = stream
        self._before = 0
        """Bytes of the file before the buffer."""
        self._memo: list[object] = []
        self._sparse: dict[int, object] = {}
        """Memo entries that are not in sequence."""
        self._stack: list[object] = []
        self._marks: list[int] = []
        self._kept = self._texts = 0
        self._templates = Templates(self.columns, self._memo)

    def run(self) -> object:  # noqa: PLR0915  an interpreter is one loop: calls would double its time
        """The value of the pickle, without what has become rows. Raises `Unreadable`."""
        stack, marks, memo = self._stack, self._marks, self._memo
        templates = self._templates
        buffer, end = self._more(b"", 0)
        position = 0
        safe = len(buffer) - AHEAD
        while True:
            if position > safe and not end:
                buffer, end = self._more(buffer, position)
                position, safe = 0, len(buffer) - AHEAD
            if position >= len(buffer):
                raise Unreadable(f"truncated: the pickle has no end, at byte {self._before + position:,}")
            op = buffer[position]
            start = position
            position += 1
            if op == 0x68:  # BINGET
                stack.append(self._get(self._fixed("<B", 1, buffer, position)))
                position += 1
            elif op == 0x7D:  # EMPTY_DICT
                after = templates.event(buffer, start)
                if after:
                    stack.append(EVENT)
                    position = after
                else:
                    stack.append(Record())
                    self._keep(1)
            elif op == 0x94:  # MEMOIZE
                self._remember(len(memo))
            elif op == 0x28:  # MARK
                marks.append(len(stack))
                if len(marks) > 1000 or len(stack) > DEEPEST:
                    raise Unreadable(f"byte {self._before + start:,}: nested deeper than any snapshot")
            elif op == 0x75:  # SETITEMS
                items = self._popped()
                self._fill(items, start)
            elif op == 0x4B:  # BININT1
                stack.append(self._fixed("<B", 1, buffer, position))
                position += 1
            elif op == 0x4A:  # BININT
                stack.append(self._fixed("<i", 4, buffer, position))
                position += 4
            elif op == 0x4D:  # BININT2
                stack.append(self._fixed("<H", 2, buffer, position))
                position += 2
            elif op in (0x8A, 0x8B):  # LONG1, LONG4
                width = 1 if op == 0x8A else 4
                length = self._fixed("<B" if width == 1 else "<i", width, buffer, position)
                position += width
                if not 0 <= length <= 16:
                    raise Unreadable(f"byte {self._before + start:,}: a number of {length} bytes")
                stack.append(int.from_bytes(buffer[position : position + length], "little", signed=True))
                position += length
            elif op == 0x6A:  # LONG_BINGET
                stack.append(self._get(self._fixed("<I", 4, buffer, position)))
                position += 4
            elif op == 0x5D:  # EMPTY_LIST
                after = templates.frames(buffer, start)
                if after:
                    stack.append(templates.last)
                    position = after
                else:
                    stack.append(Items())
                    self._keep(1)
            elif op == 0x65:  # APPENDS
                items = self._popped()
                self._append(items, start)
            elif op == 0x61:  # APPEND
                item = self._pop(start)
                self._append([item], start)
            elif op == 0x73:  # SETITEM
                value = self._pop(start)
                key = self._pop(start)
                self._fill([key, value], start)
            elif op in TEXTS:
                code, width = TEXTS[op]
                length = self._fixed(code, width, buffer, position)
                position += width
                data, buffer, position, end = self._text(length, buffer, position, end)
                safe = len(buffer) - AHEAD
                stack.append(data.decode("utf-8", "replace"))
            elif op == 0x71:  # BINPUT
                self._remember(self._fixed("<B", 1, buffer, position))
                position += 1
            elif op == 0x72:  # LONG_BINPUT
                self._remember(self._fixed("<I", 4, buffer, position))
                position += 4
            elif op in (0x88, 0x89):
                stack.append(op == 0x88)
            elif op == 0x4E:
                stack.append(None)
            elif op == 0x29:
                stack.append(())
            elif 0x85 <= op <= 0x87:  # TUPLE1 to TUPLE3
                count = op - 0x84
                if len(stack) < count:
                    raise Unreadable(f"byte {self._before + start:,}: {NAMES[op]} of nothing")
                items = stack[-count:]
                del stack[-count:]
                stack.append(tuple(items))
            elif op == 0x74:  # TUPLE
                stack.append(tuple(self._popped()))
            elif op == 0x47:  # BINFLOAT
                if position + 8 > len(buffer):
                    raise Unreadable(f"truncated at byte {self._before + position:,}")
                stack.append(struct.unpack_from(">d", buffer, position)[0])
                position += 8
            elif op in BYTES:
                code, width = BYTES[op]
                length = self._fixed(code, width, buffer, position)
                position += width
                data, buffer, position, end = self._text(length, buffer, position, end)
                safe = len(buffer) - AHEAD
                stack.append(data.decode("utf-8", "replace") if op in b"UT" else data)
            elif op == 0x30:  # POP
                self._pop(start)
            elif op == 0x80:  # PROTO
                version = self._fixed("<B", 1, buffer, position)
                if version > 5:
                    raise Unreadable(f"is of pickle protocol {version}; 2 to 5 are known")
                position += 1
            elif op == 0x95:  # FRAME
                position += 8
            elif op == 0x2E:  # STOP
                if len(stack) != 1:
                    raise Unreadable(f"byte {self._before + start:,}: the pickle ends with {len(stack)} values")
                return stack[0]
            elif op in CALLS:
                raise Unreadable(
                    f"byte {self._before + start:,}: the pickle holds {NAMES[op]}, which can run code; "
                    "nothing was run. A memory snapshot has none"
                )
            else:
                raise Unreadable(
                    f"byte {self._before + start:,}: opcode {NAMES.get(op, hex(op))} does not occur in memory snapshots"
                )

    def _more(self, buffer: bytes, position: int) -> tuple[bytes, bool]:
        """(what is left and the next piece, whether the file is at its end)."""
        self._before += position
        if len(self._stack) > DEEPEST or len(self._memo) > MOST_REMEMBERED:
            raise Unreadable(f"byte {self._before:,}: holds more values than any memory snapshot")
        read = self._stream.read(PIECE)
        return buffer[position:] + read, not read

    def _text(self, length: int, buffer: bytes, position: int, end: bool) -> tuple[bytes, bytes, int, bool]:
        """(the bytes, the buffer, the position behind them, whether the file is at its end)."""
        if not 0 <= length <= LONGEST_TEXT:
            raise Unreadable(f"byte {self._before + position:,}: a text of {length:,} bytes")
        self._texts += length
        if self._texts > MOST_TEXT:
            raise Unreadable(f"byte {self._before + position:,}: more than {MOST_TEXT:,} bytes of texts")
        while position + length > len(buffer) and not end:
            buffer, end = self._more(buffer, position)
            position = 0
        if position + length > len(buffer):
            raise Unreadable(f"truncated at byte {self._before + len(buffer):,}, in a text")
        return buffer[position : position + length], buffer, position + length, end

    def _fixed(self, code: str, width: int, buffer: bytes, position: int) -> int:
        if position + width > len(buffer):
            raise Unreadable(f"truncated at byte {self._before + position:,}")
        found: int = struct.unpack_from(code, buffer, position)[0]
        return found

    def _get(self, index: int) -> object:
        if 0 <= index < len(self._memo):
            value = self._memo[index]
        elif index in self._sparse:
            value = self._sparse[index]
        else:
            raise Unreadable(f"refers to value {index} of the memo, which it does not have")
        if type(value) is int:
            return self.columns.again(EVENT, value)
        if isinstance(value, RowRef):
            return self.columns.again(value.kind, value.number)
        if isinstance(value, Items) and value.first >= 0:
            return self.columns.list_again(value)
        return value

    def _remember(self, index: int) -> None:
        if not self._stack:
            raise Unreadable("remembers a value that it does not have")
        value = self._stack[-1]
        if isinstance(value, Record):
            value.at = index
        elif isinstance(value, Row):
            value = self.columns.last(value)
        elif type(value) is int:
            raise Unreadable("remembers a number")
        elif isinstance(value, str):
            self._templates.named(value, index)
        if index < len(self._memo):
            self._memo[index] = value
        elif index == len(self._memo):
            self._memo.append(value)
        else:
            self._sparse[index] = value
            if len(self._sparse) > MOST_KEPT:
                raise Unreadable("numbers its values in no order")

    def _popped(self) -> list[object]:
        if not self._marks:
            raise Unreadable("closes a list that it did not open")
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _pop(self, start: int) -> object:
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) <= floor:
            raise Unreadable(f"byte {self._before + start:,}: takes a value that is not there")
        return self._stack.pop()

    def _append(self, items: list[object], start: int) -> None:
        target = self._stack[-1] if self._stack else None
        if isinstance(target, StackRef) and not items:
            return  # PyTorch's own pickler closes empty lists as well
        if not isinstance(target, Items):
            raise Unreadable(f"byte {self._before + start:,}: appends to what is no list")
        for kind in (EVENT, BLOCK, SEGMENT):
            if items and items[0] is kind:
                if items.count(kind) != len(items):
                    raise Unreadable(f"byte {self._before + start:,}: a list of {kind.kind}s holds something else")
                if target.first < 0:
                    target.first = self._rows(kind) - len(items)
                if kind is EVENT:
                    target.events += len(items)
                elif kind is BLOCK:
                    target.blocks += len(items)
                else:
                    target.segments += len(items)
                return
        self._keep(len(items))
        target.extend(items)

    def _fill(self, items: list[object], start: int) -> None:
        target = self._stack[-1] if self._stack else None
        if not isinstance(target, Record) or len(items) % 2:
            raise Unreadable(f"byte {self._before + start:,}: sets items of what is no dict")
        try:
            target.update(zip(items[::2], items[1::2], strict=True))
        except TypeError:
            raise Unreadable(f"byte {self._before + start:,}: a key is no plain value") from None
        stands = self.columns.take(target)
        if stands is None:
            self._keep(len(items))
            return
        self._stack[-1] = stands
        self._kept -= 1 + sum(isinstance(value, Items) for value in target.values())
        if stands is EVENT:
            self._templates.learn(target)
        if isinstance(stands, Row):
            stands = self.columns.last(stands)
        if 0 <= target.at < len(self._memo):
            self._memo[target.at] = stands
        elif target.at >= 0:
            self._sparse[target.at] = stands

    def _rows(self, kind: Row) -> int:
        columns = self.columns
        return len(columns.action if kind is EVENT else columns.block_size if kind is BLOCK else columns.segment_size)

    def _keep(self, count: int) -> None:
        self._kept += count
        if self._kept > MOST_KEPT:
            raise Unreadable(f"holds more than {MOST_KEPT:,} values that belong to no memory snapshot")
