"""What stands on the stack of the pickle machine: containers, and what a finished row leaves behind."""

from __future__ import annotations

from typing import Final


class Record(dict[object, object]):
    """A dict that is being filled."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1
        """Its place in the memo; -1: none."""


class Items(list[object]):
    """A list. Of rows it holds only how many there were: they are in the columns, in the same order."""

    __slots__ = ("blocks", "events", "first", "segments")

    def __init__(self) -> None:
        self.blocks = self.events = self.segments = 0
        self.first = -1
        """The first of its rows; the others follow."""


class FrameRef:
    """A frame that has been interned."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class StackRef:
    """A stack that has been interned."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Row:
    """Stands for a dict that has become a row."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class RowRef:
    """A block or a segment that the memo remembers. Of events, of which there are millions, it has the plain number."""

    __slots__ = ("kind", "number")

    def __init__(self, kind: Row, number: int) -> None:
        self.kind, self.number = kind, number


EVENT: Final = Row("event")
BLOCK: Final = Row("block")
SEGMENT: Final = Row("segment")
NOTE: Final = Row("annotation")
