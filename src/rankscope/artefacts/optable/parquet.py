"""Operation tables in Parquet or Arrow files. Imported only where there is one: pyarrow takes a while to load."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

from rankscope.artefacts.opening import opened
from rankscope.artefacts.optable.columns import Values, assigned, missing, table
from rankscope.artefacts.reader import Unreadable
from rankscope.records.imported.operation_table import OperationTable

PARQUET: Final = b"PAR1"
MOST_ROWS: Final = 50_000_000
"""Ten thousand ranks, a hundred steps, fifty operations in each: more is not one job's table."""
MOST_BYTES: Final = 1 << 30
"""Of a compressed file, which has to be unpacked into memory: both formats are read from their end."""


def read(path: Path) -> OperationTable:
    """The table of a Parquet, Arrow or Feather file. Raises `Unreadable`."""
    with opened(path) as stream:
        magic = stream.read(8)
        data: Any = path if _plain(path, magic) else io.BytesIO(_bounded(magic + stream.read(MOST_BYTES)))
    try:
        columns, units = _read(data, parquet=magic.startswith(PARQUET))
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreadable(f"the file is damaged ({what})") from error
    kind, kinds = _numbered(columns["kind"])
    arrays = {name: _numbers(values, name) for name, values in columns.items() if name != "kind"}
    arrays["kind"] = kind
    return table(str(path), arrays.get, units, kinds)


def _read(data: Any, parquet: bool) -> tuple[dict[str, Any], dict[str, str]]:
    if parquet:
        file = pq.ParquetFile(data)
        names, rows = file.schema_arrow.names, file.metadata.num_rows
    else:
        reader = pa.ipc.open_file(data if isinstance(data, io.BytesIO) else pa.memory_map(str(data)))
        names, rows = reader.schema.names, 0
    found = assigned(names)
    lacking = missing(found)
    if lacking:
        raise Unreadable(
            f"is no operation table: it has no {', '.join(lacking)}, only {', '.join(names[:12]) or 'nothing'}"
            + (" and more" if len(names) > 12 else "")
        )
    if rows > MOST_ROWS:
        raise Unreadable(f"has {rows:,} rows, more than {MOST_ROWS:,}; keep fewer steps")
    wanted = [name for name, _ in found.values()]
    whole = file.read(columns=wanted) if parquet else reader.read_all().select(wanted)
    if not whole.num_rows:
        raise Unreadable("holds no row")
    return {ours: whole[name] for ours, (name, _) in found.items()}, {
        ours: unit for ours, (_, unit) in found.items() if unit
    }


def _plain(path: Path, magic: bytes) -> bool:
    with path.open("rb") as raw:
        return raw.read(len(magic)) == magic


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise Unreadable(f"unpacks to more than {MOST_BYTES >> 20} MiB; unpack it first")
    return data


def _numbers(column: Any, name: str) -> Values:
    """Whole numbers stay whole where no value is missing; times with a type of their own become ns."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        unit = pa.timestamp("ns") if pa.types.is_timestamp(kind) else pa.duration("ns")
        column = column.cast(unit).cast(pa.int64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise Unreadable(f"column {name} is of type {kind}, not numbers")
    if column.null_count and pa.types.is_integer(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy())


def _numbered(column: Any) -> tuple[Values, tuple[str, ...]]:
    """(number of each row's name, the names); -1 where there is none."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise Unreadable(f"operation types are {column.type}, not names")
    coded = column.dictionary_encode().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks()
    names = tuple(str(name) for name in coded.dictionary.to_pylist())
    if len(names) > 1 << 14:
        raise Unreadable(f"has {len(names):,} operation types: this is no operation table")
    numbers = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(numbers), names
