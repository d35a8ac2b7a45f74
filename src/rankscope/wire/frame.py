"""One frame: the records that a recorder sends at once, as checked bytes.

Layout, little endian: header (magic, version, node, number, rows, payloads, length of the body, CRC-32 of the
body, CRC-32 of the header before it), then the rows of 72 bytes, then the payloads (head and UTF-8 text each).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from rankscope.records.payload import Payload
from rankscope.records.slot import MAX_ROWS, ROW_BYTES, check_rows

MAGIC: Final = b"RKSF"
VERSION: Final = 1
MAX_PAYLOADS: Final = 400_000
MAX_BODY_BYTES: Final = 256 * 2**20

HEADER: Final = struct.Struct("<4sHHQIIQII")
PAYLOAD_HEAD: Final = struct.Struct("<HIHQI")
CRC: Final = struct.Struct("<I")


class FrameError(ValueError):
    """The bytes are no whole frame. `byte` is where that was seen."""

    def __init__(self, source: str, byte: int, why: str) -> None:
        super().__init__(f"{source or 'frame'}: byte {byte}: {why}")
        self.byte = byte


@dataclass(frozen=True, slots=True)
class Frame:
    """What one node sends at once. Numbers of a node rise by one from frame to frame."""

    number: int
    node: int
    rows: bytes = b""
    """Rows of `records.slot.ROW_FIELDS`, end to end."""
    payloads: tuple[Payload, ...] = ()

    def __post_init__(self) -> None:
        check_rows(self.rows, f"frame {self.number}")

    @property
    def num_rows(self) -> int:
        return len(self.rows) // ROW_BYTES


def encode(frame: Frame) -> bytes:
    """The bytes of a frame, for a file or a socket. ValueError for one that no reader would take."""
    parts = [frame.rows]
    for payload in frame.payloads:
        text = payload.text.encode("utf-8", "surrogatepass")
        parts += (PAYLOAD_HEAD.pack(payload.node, payload.process, payload.kind, payload.id, len(text)), text)
    body = b"".join(parts)
    if len(body) > MAX_BODY_BYTES or len(frame.payloads) > MAX_PAYLOADS:
        raise ValueError(
            f"frame {frame.number} has {len(body)} bytes and {len(frame.payloads)} payloads; split it, "
            f"{MAX_BODY_BYTES} and {MAX_PAYLOADS} are the limits"
        )
    counts = (frame.number, frame.num_rows, len(frame.payloads), len(body), zlib.crc32(body))
    header = HEADER.pack(MAGIC, VERSION, frame.node, *counts, 0)[: -CRC.size]
    return b"".join((header, CRC.pack(zlib.crc32(header)), body))


def decode(data: bytes, source: str = "") -> Frame:
    """The frame back from its bytes; FrameError names `source` and the byte where they stop making sense."""
    if len(data) < HEADER.size:
        raise FrameError(source, len(data), f"the header ends early ({HEADER.size} bytes expected)")
    magic, version, node, number, num_rows, num_payloads, body_bytes, body_crc, header_crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FrameError(source, 0, f"{magic!r} is not the magic number of a frame, {MAGIC!r}")
    if version != VERSION:
        raise FrameError(source, 4, f"version {version} is unknown; this is rankscope's frame version {VERSION}")
    if header_crc != zlib.crc32(data[: HEADER.size - CRC.size]):
        raise FrameError(source, HEADER.size - CRC.size, "the header's checksum is wrong")
    if num_rows > MAX_ROWS or num_payloads > MAX_PAYLOADS or num_rows * ROW_BYTES > body_bytes:
        raise FrameError(source, 16, f"{num_rows} rows and {num_payloads} payloads cannot stand in {body_bytes} bytes")
    end = HEADER.size + body_bytes
    if len(data) < end:
        raise FrameError(source, len(data), f"the frame ends early ({end} bytes expected)")
    if len(data) > end:
        raise FrameError(source, end, f"{len(data) - end} bytes follow the frame")
    if body_crc != zlib.crc32(memoryview(data)[HEADER.size :]):
        raise FrameError(source, HEADER.size, "the body's checksum is wrong")
    rows_end = HEADER.size + num_rows * ROW_BYTES
    payloads = _decode_payloads(data, rows_end, num_payloads, source)
    return Frame(number, node, data[HEADER.size : rows_end], payloads)


def _decode_payloads(data: bytes, at: int, count: int, source: str) -> tuple[Payload, ...]:
    payloads = []
    for _ in range(count):
        if at + PAYLOAD_HEAD.size > len(data):
            raise FrameError(source, at, "the head of a payload ends early")
        node, process, kind, ident, length = PAYLOAD_HEAD.unpack_from(data, at)
        at += PAYLOAD_HEAD.size
        if at + length > len(data):
            raise FrameError(source, at, f"the text of a payload ends early ({length} bytes expected)")
        try:
            text = data[at : at + length].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FrameError(source, at + error.start, "the text of a payload is no UTF-8") from error
        payloads.append(Payload(node, process, kind, ident, text))
        at += length
    if at != len(data):
        raise FrameError(source, at, "bytes follow the last payload")
    return tuple(payloads)
