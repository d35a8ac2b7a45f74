"""The base of every record: one frozen dataclass a kind; ring layout, wire rows and table views derive from it."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Source:
    """Where in a slot a field lies, and what it means."""

    word: str
    """One of `time_ns`, `duration_ns`, `step`, `name`, `a`, `b`, `c`."""
    shift: int
    bits: int
    unit: str
    doc: str
    is_name: bool = False
    is_float: bool = False


def field(
    word: str, unit: str, doc: str, *, shift: int = 0, bits: int = 64, is_name: bool = False, is_float: bool = False
) -> Any:
    """A record field that lies in `bits` bits of `word` from bit `shift` on.

    `is_name`: the number is an id into the process's name table. `is_float`: the bits of a double, or with 32 bits of
    a single.
    """
    return dataclasses.field(metadata={"source": Source(word, shift, bits, unit, doc, is_name, is_float)})


@dataclass(frozen=True, slots=True)
class Record:
    """What every kind has: which process wrote it, when, for how long, in which step."""

    code: ClassVar[int]
    """The number that stands for the kind in a slot; never reused."""
    kind: ClassVar[str]

    process: int = field("process", "", "pid of the process that wrote it")
    time_ns: int = field("time_ns", "ns", "monotonic clock of the node when the thing began")
    duration_ns: int = field("duration_ns", "ns", "how long it took; 0 for an event")
    step: int = field("step", "", "number of steps this process had finished when the record was written")


def sources(kind: type[Record]) -> dict[str, Source]:
    """Field name -> where it lies, for every field of a kind."""
    return {f.name: f.metadata["source"] for f in dataclasses.fields(kind)}


def unpack(word: int, source: Source) -> int | float:
    """The value of one field from its slot word."""
    if source.is_float:
        code, raw = ("<d", struct.pack("<q", word)) if source.bits == 64 else ("<f", _half(word, source.shift))
        value: float = struct.unpack(code, raw)[0]
        return value
    if source.bits == 64:
        return word
    return (word >> source.shift) & ((1 << source.bits) - 1)


def _half(word: int, shift: int) -> bytes:
    return struct.pack("<Q", word & (1 << 64) - 1)[shift // 8 : shift // 8 + 4]


def float_bits(value: float) -> int:
    """The 64 bits of a double as the signed integer that a slot word holds."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def two_floats(low: float, high: float) -> int:
    """Two singles in one slot word: `low` in its lower 32 bits. Beyond a single's range: infinite."""
    try:
        raw = struct.pack("<ff", low, high)
    except OverflowError:
        raw = struct.pack("<ff", _single(low), _single(high))
    bits: int = struct.unpack("<q", raw)[0]
    return bits


def _single(value: float) -> float:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value
