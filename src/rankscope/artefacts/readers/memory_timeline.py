"""Memory timelines of `torch.profiler`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.memory_timeline import CATEGORIES
from rankscope.records.imported.memory_timeline import MemoryTimeline as Timeline
from rankscope.records.imported.table import Table

_EVENT: Final = rb"\[\s*-?\d+\s*,\s*[0-3]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]"
_RAW: Final = re.compile(rb"\s*\[\s*" + _EVENT + rb"(\s*,\s*" + _EVENT + rb"){2}")
_STACKED: Final = re.compile(rb"\s*\[\s*\[\s*\d{13,19}\s*(,\s*\d{13,19}\s*){3}")
_PIECE: Final = 4 << 20
_FIRST: Final = 1 << 16
"""Bytes that show which of the two it is."""
_BETWEEN: Final = re.compile(rb"\]\s*,\s*(?=\[)")
_EVENTS: Final = msgspec.json.Decoder(list[tuple[int, int, int, int]])
_PAIR: Final = msgspec.json.Decoder(tuple[list[int], list[list[int]]])


class MemoryTimeline(Reader):
    """`prof.export_memory_timeline(path)` with `.json` or `.raw.json.gz` (PyTorch 2.0 and later): `[time, action,
    bytes, category]` for each allocation, or the times and the sizes by category that come of them."""

    name: ClassVar[str] = "memory timeline"

    def recognises(self, path: Path, head: bytes) -> bool:
        return _RAW.match(head) is not None or _STACKED.match(head) is not None

    def read(self, path: Path) -> Iterator[Table]:
        with opened(path) as stream:
            first = stream.read(_FIRST)
            time, size = _stacked(first, stream) if not _RAW.match(first) else _summed(_events(first, stream))
        yield Timeline(file=str(path), rank=file_rank(str(path)), time_ns=time, bytes=size)


def _events(rest: bytes, stream: BinaryIO) -> NDArray[np.int64]:
    """[event, 4]"""
    parts = []
    read = len(rest)
    rest = rest.lstrip().removeprefix(b"[")
    while True:
        data = stream.read(_PIECE)
        read += len(data)
        rest += data
        if data:
            cuts = list(_BETWEEN.finditer(rest, max(0, len(rest) - 4096)))
            if not cuts:
                if len(rest) > 2 * _PIECE + _FIRST:
                    raise Unreadable(f"is no list of allocations near byte {read:,}")
                continue
            piece, rest = rest[: cuts[-1].start() + 1] + b"]", rest[cuts[-1].end() :]
        else:
            piece = rest
        try:
            parts.append(np.array(_EVENTS.decode(b"[" + piece), np.int64).reshape(-1, 4))
        except (msgspec.DecodeError, OverflowError, RecursionError) as error:
            raise Unreadable(f"is cut short or damaged near byte {read:,} ({error})") from error
        if not data:
            return np.concatenate(parts)


def _summed(events: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(times, sizes by category), one row for all events of one moment."""
    if not len(events):
        raise Unreadable("holds no allocation")
    time, size, category = events[:, 0], events[:, 2], events[:, 3]
    if not ((category >= 0) & (category < len(CATEGORIES))).all():
        raise Unreadable("has a category that PyTorch does not know")
    last = np.concatenate((np.flatnonzero(np.diff(time)), [len(time) - 1]))
    sizes = np.empty((len(last), len(CATEGORIES)), np.int64)
    for column in range(len(CATEGORIES)):
        sizes[:, column] = np.cumsum(np.where(category == column, size, 0))[last]
    times = time[last]
    begun = times[times > 0]
    return np.where(times < 0, begun.min() if len(begun) else 0, times), sizes


def _stacked(first: bytes, stream: BinaryIO) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        times, sizes = _PAIR.decode(first + stream.read())
        table = np.array(sizes, np.int64)
        time = np.array(times, np.int64)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise Unreadable(f"is no memory timeline ({error})") from error
    if table.ndim != 2 or len(table) != len(time) or not len(time) or not 1 <= table.shape[1] <= len(CATEGORIES) + 1:
        raise Unreadable("has as many times as sizes in no way that PyTorch writes")
    wide = np.zeros((len(time), len(CATEGORIES)), np.int64)
    columns = min(table.shape[1], len(CATEGORIES))
    wide[:, :columns] = table[:, :columns]
    return time, wide
