"""The masked CRC-32C of event files, of many records at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MASK: Final = 0xA282EAD8
FEW: Final = 8
"""Records of one length that are not worth an array."""


def _table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901  a register
        found.append(value)
    return found


TABLE: Final = _table()
_TABLE = np.array(TABLE, np.uint32)


def masked(data: bytes) -> int:
    """The check sum of one piece."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF


def all_masked(pieces: Sequence[bytes]) -> NDArray[np.uint32]:
    """[piece] the check sum of each: pieces of one length are gone through together, byte by byte."""
    found = np.zeros(len(pieces), np.uint32)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        if len(which) < FEW:
            for i in which.tolist():
                found[i] = masked(pieces[i])
            continue
        columns = np.frombuffer(b"".join(pieces[i] for i in which.tolist()), np.uint8).reshape(len(which), length).T
        crc = np.full(len(which), 0xFFFFFFFF, np.uint32)
        for column in columns:
            crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
        crc ^= np.uint32(0xFFFFFFFF)
        found[which] = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(MASK)
    return found
