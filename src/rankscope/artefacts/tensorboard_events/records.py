"""The records of an event file (TFRecord): a length, its check sum, the data, their check sum."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from rankscope.artefacts.tensorboard_events.checksum import masked

PIECE: Final = 4 << 20
LARGEST: Final = 1 << 20
"""Bytes of a record that is looked at: those with more hold pictures, graphs, sounds."""


class Records:
    """Goes through a stream; what was passed over or is missing stands in the counts afterwards."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lengths: dict[bytes, int] = {}
        self.count = 0
        self.large = 0
        self.truncated_bytes = 0
        self.broken: str | None = None
        """Why the rest of the file cannot be read."""

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """(data, check sum as written) of each record of a usual size."""
        buffer, at, before = b"", 0, 0
        while True:
            if len(buffer) - at < 12:
                buffer, at, before = self._more(buffer, at, before)
                if len(buffer) < 12:
                    self.truncated_bytes = len(buffer)
                    return
            length = self._length(buffer[at : at + 12])
            if length is None:
                self.broken = f"damaged at byte {before + at:,}: the length of a record has the wrong check sum"
                return
            if length > LARGEST:
                if not self._pass(12 + length + 4 - (len(buffer) - at)):
                    return
                before += at + 12 + length + 4
                buffer, at = buffer[at + 12 + length + 4 :], 0
                self.count += 1
                self.large += 1
                continue
            while len(buffer) - at < length + 16:
                held = len(buffer) - at
                buffer, at, before = self._more(buffer, at, before)
                if len(buffer) == held:
                    self.truncated_bytes = held
                    return
            end = at + 12 + length
            self.count += 1
            yield buffer[at + 12 : end], struct.unpack_from("<I", buffer, end)[0]
            at = end + 4

    def _more(self, buffer: bytes, at: int, before: int) -> tuple[bytes, int, int]:
        return buffer[at:] + self._stream.read(PIECE), 0, before + at

    def _length(self, header: bytes) -> int | None:
        """None: the check sum is wrong. Lengths repeat, and with them their check sums."""
        found = self._lengths.get(header)
        if found is None:
            length, check = struct.unpack("<QI", header)
            if masked(header[:8]) != check:
                return None
            found = int(length)
            if len(self._lengths) < 1 << 16:
                self._lengths[header] = found
        return found

    def _pass(self, count: int) -> bool:
        """Whether so many more bytes could be passed over."""
        while count > 0:
            read = self._stream.read(min(count, PIECE))
            if not read:
                self.truncated_bytes = 1
                return False
            count -= len(read)
        return True


def starts_like_one(head: bytes) -> bool:
    """Whether a file begins with a record of a time."""
    return len(head) >= 13 and masked(head[:8]) == struct.unpack_from("<I", head, 8)[0] and head[12] == 0x09
