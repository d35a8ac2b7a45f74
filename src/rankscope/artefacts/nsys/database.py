"""A foreign SQLite file, opened so that nothing in it is run."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Unreadable

MAGIC: Final = b"SQLite format 3\0"
AT_ONCE: Final = 1 << 15
MOST_ROWS: Final = 30_000_000
"""Of one table: an hour of eight GPUs with a kernel every millisecond."""


class Database:
    """Reads ordinary tables only: views and virtual tables could compute for ever."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.dropped = 0
        """Rows whose times cannot be used."""
        rows = self._all("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        names = [str(name) for name, sql in rows if isinstance(sql, str) and "VIRTUAL" not in sql.upper().split("(")[0]]
        # xinfo tells generated columns (2 and 3) from stored ones.
        self.tables = {
            name: tuple(str(row[1]) for row in self._all(f"PRAGMA table_xinfo({_quoted(name)})") if row[6] == 0)
            for name in names
        }

    def _all(self, query: str) -> list[Any]:
        return self._connection.execute(query).fetchmany(1 << 16)

    def has(self, table: str) -> bool:
        return table in self.tables

    def times(self, table: str, columns: Sequence[Sequence[str]], marks: bool = False) -> list[NDArray[np.int64]]:
        """(start, end, columns...) of all rows with both times, the end not before the start; in order of start.

        Each column may have several names, of which the first there is is taken; -1 for what a row has not, or where
        the table has no such column. All whole numbers. `marks`: rows without an end are none that got lost.
        """
        there = self.tables.get(table, ())
        if "start" not in there or "end" not in there:
            return [np.empty(0, np.int64) for _ in range(2 + len(columns))]
        wanted = ['CAST("start" AS INTEGER)', 'CAST("end" AS INTEGER)']
        for names in columns:
            found = next((name for name in names if name in there), None)
            wanted.append("-1" if found is None else f"COALESCE(CAST({_quoted(found)} AS INTEGER), -1)")
        numeric = "typeof({0}) IN ('integer', 'real')"
        where = f"{numeric.format(_quoted('start'))} AND {numeric.format(_quoted('end'))}"
        rows = self._rows(f"SELECT {', '.join(wanted)} FROM {_quoted(table)} WHERE {where}", len(wanted))
        count = self._connection.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()[0]
        good = rows[1] >= rows[0]
        self.dropped += int((~good).sum()) if marks else int(count) - int(good.sum())
        order = np.argsort(rows[0][good], kind="stable")
        return [row[good][order] for row in rows]

    def _rows(self, query: str, width: int) -> list[NDArray[np.int64]]:
        cursor = self._connection.execute(query)
        parts: list[NDArray[np.int64]] = []
        count = 0
        while chunk := cursor.fetchmany(AT_ONCE):
            parts.append(np.array(chunk, np.int64))
            count += len(chunk)
            if count > MOST_ROWS:
                raise Unreadable(f"has a table of more than {MOST_ROWS:,} rows; export a shorter range")
        if not parts:
            return [np.empty(0, np.int64) for _ in range(width)]
        whole = np.concatenate(parts)
        return [np.ascontiguousarray(whole[:, i]) for i in range(width)]

    def texts(self, table: str, key: str, value: str, keys: NDArray[np.int64]) -> dict[int, str]:
        """Key -> text, of those keys that are asked for."""
        there = self.tables.get(table, ())
        if key not in there or value not in there:
            return {}
        asked = set(keys.tolist())
        found: dict[int, str] = {}
        cursor = self._connection.execute(f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)}")
        while chunk := cursor.fetchmany(AT_ONCE):
            for number, text in chunk:
                if isinstance(number, int) and number in asked and isinstance(text, (str, bytes)):
                    found[number] = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return found

    def own_texts(self, table: str, column: str) -> list[str | None]:
        """[row] a text that stands in the table itself, of the rows that `times` gives, in their order."""
        if column not in self.tables.get(table, ()):
            return []
        numeric = "typeof({0}) IN ('integer', 'real')"
        where = f"{numeric.format(_quoted('start'))} AND {numeric.format(_quoted('end'))}"
        wanted = f'{_quoted(column)}, CAST("start" AS INTEGER), CAST("end" AS INTEGER)'
        query = f"SELECT {wanted} FROM {_quoted(table)} WHERE {where}"
        known: dict[str, str] = {}
        rows: list[tuple[int, str | None]] = []
        cursor = self._connection.execute(query)
        while chunk := cursor.fetchmany(AT_ONCE):
            for text, start, end in chunk:
                if end >= start:
                    # The same text is one object, however many rows have it.
                    rows.append((start, known.setdefault(text, text) if isinstance(text, str) else None))
        rows.sort(key=lambda row: row[0])
        return [text for _, text in rows]

    def pairs(self, table: str, key: str, value: str) -> dict[str, str]:
        """All of a small table of two columns, as text."""
        there = self.tables.get(table, ())
        if key not in there or value not in there:
            return {}
        return {str(k): str(v) for k, v in self._all(f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)}")}


@contextmanager
def database(path: Path) -> Iterator[Database]:
    """Raises `Unreadable` for everything that SQLite does not like, also while it is read."""
    with tempfile.TemporaryDirectory(prefix="rankscope-unpacked-") as folder:
        source = path
        with path.open("rb") as raw:
            plain = raw.read(len(MAGIC)) == MAGIC
        if not plain:
            source = Path(folder) / "export.sqlite"
            with opened(path) as stream, source.open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        connection = None
        try:
            connection = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            connection.text_factory = _text
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {pragma}")
            yield Database(connection)
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise Unreadable(f"the database is damaged ({error})") from error
        finally:
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
