"""What all stores that speak ClickHouse's SQL have in common: exactly-once appends and migrations."""

from __future__ import annotations

import struct
import threading
from abc import abstractmethod

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

from rankscope.base.errors import UserError
from rankscope.records.payload import Payload
from rankscope.records.rows import ROW_DTYPE
from rankscope.store import schema
from rankscope.store.migrations import MIGRATIONS, NEWEST, bookkeeping
from rankscope.store.store import Batch, Params, Store

_PAYLOAD_HEAD = struct.Struct("<HIHQ")
"""node, process, kind, id: a row of `payloads` before its text."""


class SqlStore(Store):
    """`append`, `query` and `migrate` over three primitives: `_select`, `execute`, `_insert`.

    One process at a time appends for a node. Until its first append has succeeded, and after each failure, it is in
    doubt how far an earlier attempt came: then every table is looked at and gets only what it lacks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed: dict[int, int] = {}
        """Node -> its highest acknowledged number, once it has been read."""
        self._certain: set[int] = set()
        """Nodes of which nothing half-done can lie in the tables."""

    @abstractmethod
    def _select(self, sql: str, params: Params) -> pa.Table:
        """The rows of one SELECT."""

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run a statement that gives back nothing (DDL, INSERT ... SELECT, ALTER)."""

    @abstractmethod
    def _insert(self, table: str, row_binary: bytes) -> None:
        """Insert rows in RowBinary as one atomic block."""

    def query(self, sql: str, params: Params | None = None) -> pa.Table:
        return self._select(sql, params or {})

    def append(self, batch: Batch) -> int:
        rows = _slot_rows(batch)
        payloads = _newest_of_each(batch)
        with self._lock:
            committed = self._last_committed(batch.node)
            if batch.number <= committed:
                self._check_is_known(batch)
                return committed
            complete = self._insert_all if batch.node in self._certain else self._insert_missing
            self._certain.discard(batch.node)
            complete(batch, rows, payloads)
            self._insert_acknowledgement(batch, len(payloads))
            self._certain.add(batch.node)
            self._committed[batch.node] = batch.number
            return batch.number

    def _insert_all(self, batch: Batch, rows: bytes, payloads: list[Payload]) -> None:
        if rows:
            self._insert("slots", rows)
        if payloads:
            self._insert("payloads", _payload_rows(payloads, batch.number))

    def _insert_missing(self, batch: Batch, rows: bytes, payloads: list[Payload]) -> None:
        mine = f"WHERE node = {batch.node} AND batch = {batch.number}"
        if rows and self._lacks("slots", mine, batch.num_rows):
            self._insert("slots", rows)
        if payloads and self._lacks("payloads", mine, len(payloads)):
            self._insert("payloads", _payload_rows(payloads, batch.number))

    def _lacks(self, table: str, mine: str, expected: int) -> bool:
        """True where none of a batch is in a table; a part of it (no engine should leave one) is taken out first."""
        found = self._number(f"SELECT count() FROM {table} {mine}")
        if found not in (0, expected):
            self.execute(f"ALTER TABLE {table} DELETE {mine} SETTINGS mutations_sync = 2")
        return found != expected

    def _check_is_known(self, batch: Batch) -> None:
        known = f"SELECT count() FROM batches WHERE node = {batch.node} AND number = {batch.number}"
        if not self._number(known):
            raise ValueError(
                f"batch {batch.number} of node {batch.node} follows {self._committed[batch.node]}: numbers must rise"
            )

    def _insert_acknowledgement(self, batch: Batch, num_payloads: int) -> None:
        counts = f"{batch.number}, {batch.node}, {batch.num_rows}, {num_payloads}"
        self.execute(f"INSERT INTO batches SELECT {counts}, now64(3, 'UTC')")

    def _last_committed(self, node: int) -> int:
        if node not in self._committed:
            self._committed[node] = self._number(f"SELECT max(number) FROM batches WHERE node = {node}")
        return self._committed[node]

    def _number(self, sql: str) -> int:
        return int(self._select(sql, {}).column(0)[0].as_py())

    def migrate(self, profile: str = "embedded") -> None:
        with self._lock:
            self.execute(bookkeeping(profile))
            have = self._number("SELECT max(version) FROM migrations")
            if have > NEWEST:
                raise UserError(f"the store has schema version {have}, this rankscope knows {NEWEST}: update rankscope")
            steps = MIGRATIONS if have else ((NEWEST, schema.tables),)
            for version, statements in steps:
                if have < version:
                    for sql in statements(profile):
                        self.execute(sql)
                    self.execute(f"INSERT INTO migrations SELECT {version}, 0, now64(3, 'UTC')")


def _slot_rows(batch: Batch) -> bytes:
    """The rows with the batch's number behind each, as RowBinary. ValueError for rows of another node."""
    if not batch.rows:
        return b""
    came = np.frombuffer(batch.rows, ROW_DTYPE)
    if (came["node"] != batch.node).any():
        raise ValueError(f"batch {batch.number} of node {batch.node} holds rows of another node")
    # As plain bytes: copying field by field would take ten times as long.
    rows = np.empty((len(came), schema.SLOT_ROW.itemsize), np.uint8)
    rows[:, : came.dtype.itemsize] = np.frombuffer(batch.rows, np.uint8).reshape(len(came), -1)
    rows[:, came.dtype.itemsize :] = np.frombuffer(struct.pack("<Q", batch.number), np.uint8)
    return rows.tobytes()


def _newest_of_each(batch: Batch) -> list[Payload]:
    """The batch's payloads without those that a later one of it replaces. ValueError for one of another node."""
    if any(payload.node != batch.node for payload in batch.payloads):
        raise ValueError(f"batch {batch.number} of node {batch.node} holds payloads of another node")
    return list({(p.process, p.kind, p.id): p for p in batch.payloads}.values())


def _payload_rows(payloads: list[Payload], batch: int) -> bytes:
    """Rows of `payloads` as RowBinary."""
    parts: list[bytes] = []
    for payload in payloads:
        text = payload.text.encode("utf-8", "replace")
        head = _PAYLOAD_HEAD.pack(payload.node, payload.process, payload.kind, payload.id)
        parts += (head, _varint(len(text)), text, struct.pack("<Q", batch))
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """LEB128: how RowBinary writes a length."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
