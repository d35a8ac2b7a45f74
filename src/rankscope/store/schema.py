"""The tables and views, derived from the records: one physical table of slots, one view a kind of record.

| table or view | a row is |
|---|---|
| `slots` | one record as it came: see `records.slot`; `batch` is the number it came with |
| `payloads` | one text; `names`, `stacks`, `processes` show the newest of each |
| `batches` | one acknowledged batch |
| `step_totals`, `minute_totals` | calls, total and longest duration of one kind in one process and step (minute) |
| `step`, `forward`, ... | one record of that kind: its fields as columns, a name beside its id (`name`, `name_id`) |

`arrivals` keeps nothing: what is inserted there goes to `slots` and the rollups through materialised views, so that
each of them can be repaired alone after a crash.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rankscope.records.kinds import KINDS
from rankscope.records.payload import NAME, PROCESS, STACK
from rankscope.records.record import Record, Source, sources
from rankscope.records.slot import CLICKHOUSE_TYPES, ROW_FIELDS

PROFILES: Final = ("embedded", "server", "cluster")

SLOT_ROW: Final = np.dtype([*ROW_FIELDS, ("batch", "<u8")])
"""A row of `slots` as RowBinary."""

CODECS: Final = {"commit": "Delta, LZ4", "time_ns": "Delta, LZ4", "seal": "Delta, LZ4"}
"""Columns that rise from row to row: their differences are small, and that packs well."""

BUCKETS: Final = {"step": "step", "minute": "toUInt32(intDiv(time_ns, 60000000000))"}
"""Rollup -> what it groups by besides node, process and kind."""

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


def base_tables(profile: str) -> list[str]:
    """Schema version 1: what came, and what is acknowledged."""
    plain = slot_columns()
    for codec in set(CODECS.values()):
        plain = plain.replace(f" CODEC({codec})", "")
    return [
        f"CREATE TABLE IF NOT EXISTS slots ({slot_columns()}, INDEX of_batch batch TYPE minmax GRANULARITY 1) "
        f"{engine(profile)} ORDER BY (kind, process, step, time_ns) {SETTINGS}",
        "CREATE TABLE IF NOT EXISTS payloads (node UInt16, process UInt32, kind UInt16, id UInt64, text String, "
        f"batch UInt64) {engine(profile)} ORDER BY (kind, node, process, id) {SETTINGS}",
        "CREATE TABLE IF NOT EXISTS batches (number UInt64, node UInt16, rows UInt64, payloads UInt64, "
        f"committed_at DateTime64(3, 'UTC')) {engine(profile)} ORDER BY (node, number) {SETTINGS}",
        f"CREATE TABLE IF NOT EXISTS arrivals ({plain}) ENGINE = Null",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS arrivals_to_slots TO slots AS SELECT * FROM arrivals",
    ]


def rollup_table(bucket: str, profile: str) -> str:
    """The statement that makes a rollup: mergeable states, so that parts of it can be added up in any order."""
    return (
        f"CREATE TABLE rollup_{bucket} (node UInt16, process UInt32, kind UInt16, {bucket} UInt32, "
        "calls SimpleAggregateFunction(sum, UInt64), total_ns SimpleAggregateFunction(sum, Int64), "
        "longest_ns SimpleAggregateFunction(max, Int64), up_to_batch SimpleAggregateFunction(max, UInt64)) "
        f"{engine(profile, 'Aggregating')} ORDER BY (kind, node, process, {bucket}) {SETTINGS}"
    )


def rollup_select(bucket: str, table: str, where: str = "") -> str:
    """The rows of a rollup from slots or arrivals. `up_to_batch`: what its node had sent by then."""
    return (
        f"SELECT node, process, kind, {BUCKETS[bucket]} AS {bucket}, count() AS calls, "
        "sum(duration_ns) AS total_ns, max(duration_ns) AS longest_ns, max(batch) AS up_to_batch "
        f"FROM {table} {where} GROUP BY node, process, kind, {bucket}"
    )


def rollups(profile: str) -> list[str]:
    """Schema version 2: totals per step and per minute, filled from what is already there."""
    statements = []
    for bucket in BUCKETS:
        statements += [
            f"DROP VIEW IF EXISTS arrivals_to_rollup_{bucket}",
            f"DROP TABLE IF EXISTS rollup_{bucket}",
            rollup_table(bucket, profile),
            f"INSERT INTO rollup_{bucket} {rollup_select(bucket, 'slots')}",
            f"CREATE MATERIALIZED VIEW arrivals_to_rollup_{bucket} TO rollup_{bucket} AS "
            + rollup_select(bucket, "arrivals"),
        ]
    return statements


def views() -> list[str]:
    """Every view that readers use. They hold no data and are made anew when their text changes."""
    statements = [
        _newest("names", NAME, "node, process, id"),
        _newest("stacks", STACK, "node, process, id"),
        _newest("processes", PROCESS, "node, process"),
    ]
    for bucket in BUCKETS:
        key = f"node, process, kind, {bucket}"
        statements.append(
            f"CREATE OR REPLACE VIEW {bucket}_totals AS SELECT {key}, sum(t.calls) AS calls, "
            f"sum(t.total_ns) AS total_ns, max(t.longest_ns) AS longest_ns FROM rollup_{bucket} AS t GROUP BY {key}"
        )
    return statements + [kind_view(kind) for kind in KINDS.values()]


def _newest(view: str, kind: int, key: str) -> str:
    """The view of one kind of text: the newest for each key."""
    return (
        f"CREATE OR REPLACE VIEW {view} AS SELECT {key}, argMax(text, batch) AS text "
        f"FROM payloads WHERE kind = {kind} GROUP BY {key}"
    )


def kind_view(kind: type[Record]) -> str:
    """The view of one kind: `node`, `process`, `lane`, then its fields; `X_id` follows a name `X`."""
    fields = sources(kind)
    named = [name for name, source in fields.items() if source.is_name]
    columns = ["s.node AS node", "s.lane AS lane"]
    for name, source in fields.items():
        columns += [f"n.text AS `{name}`", f"s.name AS `{name}_id`"] if source.is_name else [_column(name, source)]
    join = " LEFT ANY JOIN names AS n ON n.node = s.node AND n.process = s.process AND n.id = s.name" if named else ""
    return (
        f"CREATE OR REPLACE VIEW `{kind.kind}` AS SELECT {', '.join(columns)} "
        f"FROM slots AS s{join} WHERE s.kind = {kind.code}"
    )


def _column(name: str, source: Source) -> str:
    word = f"s.{source.word}"
    if source.is_float:
        return f"reinterpretAsFloat64({word}) AS `{name}`"
    if source.bits == 64 or source.word in ("step", "process", "name"):
        return f"{word} AS `{name}`"
    mask = (1 << source.bits) - 1
    return f"bitAnd(bitShiftRight({word}, {source.shift}), {mask}) AS `{name}`"
