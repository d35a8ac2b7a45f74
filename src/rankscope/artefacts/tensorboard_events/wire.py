"""As much of protocol buffers as event files need: fields of a message, and the scalars of an event."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rankscope.artefacts.reader import Unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGEST_TENSOR: Final = 1
"""Values of a tensor that is a scalar."""

_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("<u1"),
    5: np.dtype("<i2"),
    6: np.dtype("<i1"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    17: np.dtype("<u2"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
}
"""Of TensorFlow's numbers for types those that a scalar can have; 14 is bfloat16."""
BFLOAT16, HALF = 14, 19


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field, wire type, value) of a message. Raises `Unreadable` where it is none."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield field, wire, value
        elif wire == BYTES:
            length, at = varint(data, at)
            if at + length > end:
                raise Unreadable("a field is longer than its message")
            yield field, wire, data[at : at + length]
            at += length
        elif wire in (FIXED64, FIXED32):
            width = 8 if wire == FIXED64 else 4
            if at + width > end:
                raise Unreadable("a field is longer than its message")
            yield field, wire, data[at : at + width]
            at += width
        else:
            raise Unreadable(f"wire type {wire} is none of protocol buffers 3")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(the number that begins here, the position behind it)."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Unreadable("a number has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def signed(value: int) -> int:
    """A varint as int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def event(data: bytes) -> tuple[float, int, list[tuple[str, float]]]:
    """(wall time in s, step, (tag, value) of its scalars) of an Event. Raises `Unreadable` where it is none."""
    wall, step, scalars = 0.0, 0, []
    for field, wire, value in fields(data):
        if field == 1 and wire == FIXED64:
            wall = struct.unpack("<d", _bytes(value))[0]
        elif field == 2 and wire == VARINT:
            step = signed(_number(value))
        elif field == 5 and wire == BYTES:
            for inner, inner_wire, content in fields(_bytes(value)):
                if inner == 1 and inner_wire == BYTES:
                    found = _scalar(_bytes(content))
                    if found is not None:
                        scalars.append(found)
    return wall, step, scalars


def _scalar(data: bytes) -> tuple[str, float] | None:
    """Of a Summary.Value; None where it is an image, a histogram, a text."""
    tag, number = "", None
    for field, wire, value in fields(data):
        if field == 1 and wire == BYTES:
            tag = _bytes(value).decode("utf-8", "replace")
        elif field == 2 and wire == FIXED32:
            number = struct.unpack("<f", _bytes(value))[0]
        elif field == 8 and wire == BYTES:
            number = _tensor(_bytes(value))
    return (tag, number) if number is not None and tag else None


def _tensor(data: bytes) -> float | None:
    """The value of a TensorProto that holds one number; None where it holds another thing."""
    dtype, content, values, sizes = 0, b"", [], 1
    for field, wire, value in fields(data):
        if field == 1 and wire == VARINT:
            dtype = _number(value)
        elif field == 2 and wire == BYTES:
            sizes = _elements(_bytes(value))
        elif field == 4 and wire == BYTES:
            content = _bytes(value)
        elif field in (5, 6, 7, 10, 11, 13, 16, 17):
            values.append((field, wire, value))
    if sizes != LARGEST_TENSOR or not (dtype == BFLOAT16 or dtype in _DTYPES):
        return None
    if content:
        if dtype == BFLOAT16:
            return _of_bfloat16(int.from_bytes(content[:2], "little")) if len(content) == 2 else None
        kind = _DTYPES[dtype]
        return float(np.frombuffer(content, kind)[0]) if len(content) == kind.itemsize else None
    return _listed(dtype, *values[0]) if values else None


def _listed(dtype: int, field: int, wire: int, value: int | bytes) -> float | None:
    """The first number of a `*_val` field, packed or not."""
    if field in (5, 6):
        data = _bytes(value)
        return float(struct.unpack("<f" if field == 5 else "<d", data[: 4 if field == 5 else 8])[0]) if data else None
    number = varint(_bytes(value), 0)[0] if wire == BYTES and value else value if isinstance(value, int) else 0
    if field == 13:
        return _of_bfloat16(number) if dtype == BFLOAT16 else float(np.uint16(number & 0xFFFF).view(np.float16))
    return float(signed(number))


def _elements(shape: bytes) -> int:
    """Of a TensorShapeProto."""
    found = 1
    for field, wire, value in fields(shape):
        if field == 2 and wire == BYTES:
            size = next((_number(v) for f, w, v in fields(_bytes(value)) if f == 1 and w == VARINT), 0)
            found *= size
    return found


def _of_bfloat16(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0])


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _number(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value
