"""The tables, derived from the records: one physical table of slots, whatever their kind.

| table | a row is |
|---|---|
| `slots` | one record as it came: see `records.slot`; `batch` is the number it came with |
| `payloads` | one text; of several with one number the newest counts |
| `batches` | one acknowledged batch |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rankscope.records.kinds import KINDS
from rankscope.records.slot import CLICKHOUSE_TYPES, ROW_FIELDS

PROFILES: Final = ("embedded", "server", "cluster")

SLOT_ROW: Final = np.dtype([*ROW_FIELDS, ("batch", "<u8")])
"""A row of `slots` as RowBinary."""

CODECS: Final = {"commit": "Delta, LZ4", "time_ns": "Delta, LZ4", "seal": "Delta, LZ4"}
"""Columns that rise from row to row: their differences are small, and that packs well."""

SETTINGS: Final = "SETTINGS index_granularity = 8192, old_parts_lifetime = 30"


def engine(profile: str, variant: str = "") -> str:
    """The ENGINE clause of a table."""
    if profile not in PROFILES:
        raise ValueError(f"there is no store profile {profile!r}; use one of {', '.join(PROFILES)}")
    return f"ENGINE = {'Replicated' if profile == 'cluster' else ''}{variant}MergeTree"


def database(name: str, profile: str) -> str:
    """The statement that makes the database. A cluster's one replicates its own DDL."""
    kind = (
        f"Replicated('/clickhouse/databases/{name}', '{{shard}}', '{{replica}}')" if profile == "cluster" else "Atomic"
    )
    return f"CREATE DATABASE IF NOT EXISTS {name} ENGINE = {kind}"


def slot_columns() -> str:
    """Columns of `slots` in the order of the wire, `batch` last."""
    columns = [f"{name} {CLICKHOUSE_TYPES[kind]}" + _codec(name) for name, kind in ROW_FIELDS]
    return ", ".join([*columns, "batch UInt64"])


def _codec(column: str) -> str:
    return f" CODEC({CODECS[column]})" if column in CODECS else ""


def tables(profile: str) -> list[str]:
    """All tables as they are now: what came, and what is acknowledged."""
    return [
        f"CREATE TABLE IF NOT EXISTS slots ({slot_columns()}, INDEX of_batch batch TYPE minmax GRANULARITY 1) "
        f"{engine(profile)} ORDER BY (kind, process, step, time_ns) {SETTINGS}",
        "CREATE TABLE IF NOT EXISTS payloads (node UInt16, process UInt32, kind UInt16, id UInt64, text String, "
        f"batch UInt64) {engine(profile)} ORDER BY (kind, node, process, id) {SETTINGS}",
        "CREATE TABLE IF NOT EXISTS batches (number UInt64, node UInt16, rows UInt64, payloads UInt64, "
        f"committed_at DateTime64(3, 'UTC')) {engine(profile)} ORDER BY (node, number) {SETTINGS}",
    ]


def without_views(profile: str) -> list[str]:
    """Schema version 3: no totals, which each insert had to keep up and nobody read, and no view for each kind."""
    feeds = ("arrivals_to_rollup_step", "arrivals_to_rollup_minute", "arrivals_to_slots")
    views = ("step_totals", "minute_totals", "names", "stacks", "processes", *(kind.kind for kind in KINDS.values()))
    return [
        *(f"DROP VIEW IF EXISTS `{view}`" for view in (*feeds, *views)),
        *(f"DROP TABLE IF EXISTS {table}" for table in ("rollup_step", "rollup_minute", "arrivals")),
    ]
