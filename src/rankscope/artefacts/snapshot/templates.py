"""Takes whole events and whole stacks of a pickle at once, once their shape is known: ten times faster than by opcode.

Almost all of a large snapshot is events of one shape, whose keys and frames are references to the memo. What does not
fit is left to the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.snapshot.columns import LARGEST, Columns
from rankscope.artefacts.snapshot.values import Record, StackRef
from rankscope.records.imported.memory_snapshot import ACTIONS, OOM, OTHER

Taker: TypeAlias = Callable[[bytes, int], int]

GET: Final = rb"(?:h.|j.{4})"
PUT: Final = rb"((?:\x94|q.|r.{4})?)"
INT: Final = rb"(?:K.|M..|J.{4}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x08.{8}|\x8a\x05.{5}|\x8a\x04.{4})"
STACK: Final = rb"\]" + PUT + rb"(?:\((" + GET + rb"*)e|(" + GET + rb")a|)(?![(a])" + PUT
"""As of Python's picklers (remembered first; one item alone; nothing for an empty list) and of PyTorch's own."""
VALUES: Final = {
    "int": (rb"(" + INT + rb")", 1),
    "text": (rb"(" + GET + rb")", 1),
    "pair": (rb"(?:" + GET + rb"|(" + INT + INT + rb")\x86" + PUT + rb")", 2),
    "stack": (rb"(?:(" + GET + rb")|" + STACK + rb")", 5),
}
"""Of each kind of value the pattern and how many groups it has."""
LONGEST_STACK: Final = 8192
"""Bytes in which the end of a known stack is looked for."""
MOST_SHAPES: Final = 6
MOST_NUMBERS: Final = 1 << 16
"""Of an allocator's addresses and sizes most come again; so many are remembered."""


class Templates:
    """Patterns of the events seen so far."""

    def __init__(self, columns: Columns, memo: list[object]) -> None:
        self.last: StackRef | None = None
        """The stack that `frames` found."""
        self._columns = columns
        self._memo = memo
        self._keys: dict[str, bytes] = {}
        self._shapes: set[tuple[object, ...]] = set()
        self._takers: list[Taker] = []
        self._stacks: dict[bytes, StackRef] = {}
        self._numbers: dict[bytes, int] = {}
        self._frames = re.compile(STACK, re.DOTALL).match

    def named(self, text: str, index: int) -> None:
        """A text has been remembered: it may be the key of an event."""
        if len(text) <= 20:
            self._keys[text] = _get(index)

    def learn(self, record: Record) -> None:
        """An event has been read by opcode: from now on its shape is known."""
        shape = tuple(record)
        if shape in self._shapes or len(self._shapes) >= MOST_SHAPES:
            return
        self._shapes.add(shape)
        pattern, names = [rb"\}" + PUT + rb"\("], []
        for key, value in record.items():
            kind = _kind(key, value)
            if not isinstance(key, str) or key not in self._keys or not kind:
                return
            pattern += [re.escape(self._keys[key]), VALUES[kind][0]]
            names.append((key, kind))
        if "action" in record and "size" in record:
            whole = re.compile(b"".join(pattern) + b"u", re.DOTALL)
            ahead = None
            if names[-1][1] == "stack":
                ahead = re.compile(b"".join(pattern[:-1]) + rb"\]\x94\(", re.DOTALL)
            self._takers.append(self._taker(whole, ahead, names))

    def event(self, buffer: bytes, position: int) -> int:
        """The position behind the event that begins here; 0 where it is none of a known shape."""
        for taker in self._takers:
            after = taker(buffer, position)
            if after:
                return after
        return 0

    def frames(self, buffer: bytes, position: int) -> int:
        """The position behind the stack that begins here, which is then `last`; 0 where it is none of known frames."""
        found = self._frames(buffer, position)
        if found is None:
            return 0
        before, many, one, behind = found.groups()
        gets = many or one
        stack = self._stack(gets) if gets else None  # an empty list may be one of anything
        if stack is None or not self._put([(before, stack), (behind, stack)]):
            return 0
        self.last = stack
        return found.end()

    def _taker(  # noqa: PLR0915  it runs once an event: a call for each of its parts would double its time
        self, pattern: re.Pattern[bytes], ahead: re.Pattern[bytes] | None, names: list[tuple[str, str]]
    ) -> Taker:
        """Of one shape. `ahead` is its part before the frames, where they come last and are written Python's way."""
        at, places, pairs = 2, {}, []
        for name, kind in names:
            places[name] = at
            if kind == "pair":
                pairs.append(at)
            at += VALUES[kind][1]
        stack_at = places.get("frames", 0)
        oom, timed = "device_free" in places, "time_us" in places
        # Group 0 is the whole text: it stands for what is not there.
        before_stack = (
            1, places["action"], places.get("device_free", places.get("addr", 0)), places["size"],
            places.get("time_us", 0),
        )  # fmt: skip
        wanted = (*before_stack, *(range(stack_at, stack_at + 5) if stack_at else (0,) * 5))
        columns, memo, stacks, numbers, match = self._columns, self._memo, self._stacks, self._numbers, pattern.match
        match_ahead = None if ahead is None or pairs else ahead.match
        actions: dict[bytes, int] = {}
        code_column = columns.action
        add_action, add_address, add_size = code_column.append, columns.address.append, columns.size.append
        add_time, add_stack = columns.time_us.append, columns.stack.append

        def take(buffer: bytes, position: int) -> int:
            stack: object = None
            found = match_ahead(buffer, position) if match_ahead is not None else None
            if found is not None:
                # A text that has been taken for a stack before, up to the end of a list and of a dict, is one again.
                start = found.end()
                after = buffer.find(b"eu", start, start + LONGEST_STACK)
                stack = stacks.get(buffer[start:after])
            if found is not None and stack is not None:
                put, action, address, size, time = found.group(*before_stack)
                get, before, many, one, behind = None, b"\x94", b"", b"", b""
                after += 2
            else:
                found = match(buffer, position)
                if found is None:
                    return 0
                put, action, address, size, time, get, before, many, one, behind = found.group(*wanted)
                after = found.end()
            code = actions.get(action)
            if code is None:
                code = actions[action] = self._action(action)
            if code < 0 or (code == OOM) is not oom:
                return 0
            if stack is not None:
                pass
            elif not stack_at:
                before = behind = b""
            elif get is not None:
                stack = self._got(get)
                before = behind = b""
            else:
                gets = many or one or b""
                stack = stacks.get(gets) or self._stack(gets)
            if stack_at and not isinstance(stack, StackRef):
                return 0
            if put == b"\x94" and not behind and not pairs and (before == put or not before):
                memo.append(len(code_column))
                if before:
                    memo.append(stack)
            elif not self._puts(found, put, pairs, stack_at if before or behind else 0, stack):
                return 0
            known = numbers.get(address)
            add_address(self._number(address) if known is None else known)
            known = numbers.get(size)
            add_size(self._number(size) if known is None else known)
            add_action(code)
            add_time(self._decoded(time) if timed else -1)
            add_stack(stack.number if isinstance(stack, StackRef) else -1)
            return after

        return take

    def _puts(self, found: re.Match[bytes], put: bytes, pairs: list[int], stack_at: int, stack: object) -> bool:
        """Whether what the event puts into the memo is there now, in the file's order."""
        puts: list[tuple[int, bytes, object]] = [(0, put, len(self._columns.action))]
        for at in pairs:
            if found[at]:
                first = _first(found[at])
                pair = (self._decoded(first), self._decoded(found[at][len(first) :]))
                puts.append((found.start(at), found[at + 1], pair))
        if stack_at:
            puts += [(found.start(at), found[at], stack) for at in (stack_at + 1, stack_at + 4)]
        return self._put([(code, value) for _, code, value in sorted(puts, key=lambda one: one[0])])

    def _put(self, puts: list[tuple[bytes, object]]) -> bool:
        """Whether all of these are in the memo now; nothing is, where one of them has a number out of sequence."""
        expected = len(self._memo)
        for code, _ in puts:
            if code and code[0] != 0x94 and int.from_bytes(code[1:], "little") != expected:
                return False
            expected += bool(code)
        self._memo += [value for code, value in puts if code]
        return True

    def _action(self, get: bytes) -> int:
        name = self._got(get)
        return ACTIONS.get(name, OTHER) if isinstance(name, str) else -1

    def _got(self, get: bytes) -> object:
        index = int.from_bytes(get[1:], "little")
        return self._memo[index] if index < len(self._memo) else None

    def _number(self, text: bytes) -> int:
        value = self._decoded(text)
        if len(self._numbers) < MOST_NUMBERS:
            self._numbers[text] = value
        return value

    def _decoded(self, text: bytes) -> int:
        op = text[0]
        if op == 0x8A:
            value = int.from_bytes(text[2:], "little", signed=True)
            if not -LARGEST < value < LARGEST:
                raise Unreadable(f"{value} is not a number of bytes, an address or a time")
            return value
        return int.from_bytes(text[1:], "little", signed=op == 0x4A)

    def _stack(self, gets: bytes) -> StackRef | None:
        """The stack of these references; None where one of them is no frame."""
        found = self._stacks.get(gets)
        if found is not None:
            return found
        frames = []
        at = 0
        while at < len(gets):
            width = 2 if gets[at] == 0x68 else 5
            frames.append(self._got(gets[at : at + width]))
            at += width
        stack = self._columns.stack_ref(frames)
        if stack is not None:
            self._stacks[gets] = stack
        return stack


def _kind(key: object, value: object) -> str:
    """How such a value is written; empty where it is one that no pattern is for."""
    if key == "frames":
        return "stack"
    if isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return "pair" if len(value) == 2 and all(isinstance(part, int) for part in value) else ""
    return {int: "int", str: "text"}.get(type(value), "")


def _get(index: int) -> bytes:
    """The opcode that refers to a place of the memo."""
    return b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little")


def _first(text: bytes) -> bytes:
    """The first of two numbers."""
    widths = {0x4B: 2, 0x4D: 3, 0x4A: 5}
    return text[: widths.get(text[0]) or 2 + text[1]]
