"""The one fixed layout: what a rank writes into its ring is what the wire carries and what the table holds.

A slot is 64 bytes, little endian. The commit number stands at both ends: a reader that finds two different
numbers has met a slot while it was being written (a torn slot) and leaves it. A row is a slot with the eight
bytes in front that say where it came from; rows laid end to end are ClickHouse `RowBinary`.
"""

from __future__ import annotations

import struct
from typing import Final

SLOT: Final = struct.Struct("<QqqHHIqqqQ")
SLOT_BYTES: Final = SLOT.size

SLOT_FIELDS: Final = (
    ("commit", "<u8"),
    ("time_ns", "<i8"),
    ("duration_ns", "<i8"),
    ("kind", "<u2"),
    ("name", "<u2"),
    ("step", "<u4"),
    ("a", "<i8"),
    ("b", "<i8"),
    ("c", "<i8"),
    ("seal", "<u8"),
)
"""numpy dtype of a slot. `seal` repeats `commit`."""

ROW_FIELDS: Final = (("process", "<u4"), ("lane", "<u2"), ("node", "<u2"), *SLOT_FIELDS)
"""numpy dtype of a row: 72 bytes."""

ROW_BYTES: Final = 8 + SLOT_BYTES

MAX_ROWS: Final = 400_000
"""Rows that travel at once, 29 MB: an insert below a million rows is one part, hence in a table whole or not at all."""

CLICKHOUSE_TYPES: Final = {"<u8": "UInt64", "<i8": "Int64", "<u2": "UInt16", "<u4": "UInt32"}


def check_rows(rows: bytes, of: str) -> None:
    """ValueError where `rows` are no whole rows, or too many; `of` (`frame 7`) says whose they are."""
    if len(rows) % ROW_BYTES:
        raise ValueError(f"rows of {of} have {len(rows)} bytes, no multiple of {ROW_BYTES}")
    if len(rows) > MAX_ROWS * ROW_BYTES:
        raise ValueError(f"{of} has {len(rows) // ROW_BYTES} rows; split it, {MAX_ROWS} is the limit")
