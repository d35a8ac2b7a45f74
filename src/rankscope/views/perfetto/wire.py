"""Protocol buffers by hand: single fields, and the same field of thousands of messages at once.

Of many messages every field is given the same width: a varint may have more bytes than it needs, and messages of one
size can be laid out as one matrix of bytes, a row a message.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""[row, byte]"""

VARINT, FIXED64, LENGTH = 0, 1, 2
"""Wire types."""


def varint(value: int) -> bytes:
    """A whole number, 0 or more."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int, wire_type: int) -> bytes:
    """What stands before a field."""
    return varint(field << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """A field that holds a whole number, 0 or more."""
    return tag(field, VARINT) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return tag(field, LENGTH) + varint(len(data)) + data


def text(field: int, value: str) -> bytes:
    """A field that holds a text; what UTF-8 cannot hold becomes `?`."""
    return block(field, value.encode("utf-8", "replace"))


def double(field: int, value: float) -> bytes:
    """A field that holds a floating-point number."""
    return tag(field, FIXED64) + struct.pack("<d", value)


class Rows:
    """Messages of one layout under construction: fields are put one after the other, the same one of every row."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.width = 0
        self._pieces: list[bytes | Bytes] = []

    def constant(self, data: bytes) -> None:
        """The same bytes in every row."""
        self._pieces.append(data)
        self.width += len(data)

    def numbers(self, field: int, values: NDArray[np.int64]) -> None:
        """A whole number of each row; a negative one takes ten bytes, as in every int64 field."""
        words = values.astype(np.int64).view(np.uint64)
        size = max(1, -(-int(words.max()).bit_length() // 7)) if len(words) else 1
        out = np.empty((self.count, size), np.uint8)
        for at in range(size):
            out[:, at] = (words >> np.uint64(7 * at)) & np.uint64(0x7F)
        out[:, :-1] |= 0x80
        self._put(tag(field, VARINT), out)

    def fixed(self, field: int, values: NDArray[np.int64] | NDArray[np.float64]) -> None:
        """A 64-bit number of each row, whole or not."""
        self._put(tag(field, FIXED64), np.ascontiguousarray(values).view(np.uint8).reshape(self.count, 8))

    def message(self, field: int, inner: Rows) -> None:
        """A message of each row."""
        self.constant(tag(field, LENGTH) + varint(inner.width))
        self._pieces += inner._pieces
        self.width += inner.width

    def matrix(self) -> Bytes:
        """All rows."""
        out = np.empty((self.count, self.width), np.uint8)
        at = 0
        for piece in self._pieces:
            size = len(piece) if isinstance(piece, bytes) else piece.shape[1]
            out[:, at : at + size] = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
            at += size
        return out

    def _put(self, head: bytes, values: Bytes) -> None:
        self.constant(head)
        self._pieces.append(values)
        self.width += values.shape[1]
