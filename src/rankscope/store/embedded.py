"""The store without a server: ClickHouse as a library (chdb) over one folder, for one process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

from rankscope.base.errors import UserError
from rankscope.store import schema
from rankscope.store.lock import FolderLock
from rankscope.store.sql_store import SqlStore
from rankscope.store.store import Params, StoreError, in_words

OPTIONS = {
    "max_threads": 2,  # training has the other cores
    "background_pool_size": 1,
    "background_schedule_pool_size": 1,
    "memory_worker_period_ms": 10_000,  # by default it wakes 20 times a second, a third of the idle CPU time
    "memory_worker_decay_adjustment_period_ms": 0,
    "mark_cache_size": 16 << 20,
    "primary_index_cache_size": 16 << 20,
    "query_condition_cache_size": 1 << 20,
    "compiled_expression_cache_size": 1 << 20,
}
"""Arguments of the engine: an open store that nobody uses shall cost next to nothing."""
DAMAGE = (
    "CHECKSUM_DOESNT_MATCH",
    "CORRUPTED_DATA",
    "CANNOT_READ_ALL_DATA",
    "CANNOT_DECOMPRESS",
    "UNKNOWN_CODEC",
    "FILE_DOESNT_EXIST",
)
"""What the engine says of files that are not as it left them."""
LOST_PARTS = (
    "SELECT table, groupArray(path) AS paths FROM system.detached_parts "
    "WHERE database = currentDatabase() AND reason LIKE 'broken%' GROUP BY table ORDER BY table"
)
"""Parts that the engine has put aside when it opened the folder, because they cannot be read."""
ALL_THERE = (
    "SELECT (SELECT count() FROM slots) >= sum(rows) AND (SELECT count() FROM payloads) >= sum(payloads) FROM batches"
)
"""Whether everything is there that was acknowledged: what breaks before that comes again."""


class EmbeddedStore(SqlStore):
    """A store in a folder. One folder a process at a time: a limit of chdb."""

    open_folder: ClassVar[Path | None] = None
    """The folder that this process has open."""

    def __init__(self, folder: Path | str) -> None:
        super().__init__()
        self.folder = Path(folder).absolute()
        if set("?&%#") & set(str(self.folder)):
            raise UserError(f"the embedded store cannot use a path with ? & % or #: {self.folder}")
        other = EmbeddedStore.open_folder
        if other not in (None, self.folder):
            raise UserError(f"this process has the store {other} open: close it before opening {self.folder}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the store's folder {self.folder}: {error.strerror}") from error
        self._folder_lock = FolderLock(self.folder)
        self._inserting = threading.Lock()
        try:
            self._session: Any = self._open_session()
            # Its own: while an insert streams, its session answers no query.
            self._insert_session: Any = self._open_session()
        except BaseException:
            self._folder_lock.release()
            raise
        EmbeddedStore.open_folder = self.folder

    def _open_session(self) -> Any:
        from chdb import session  # 0.2 s and 250 MB that only the owner of a store pays

        arguments = "&".join(f"{name}={value}" for name, value in OPTIONS.items())
        try:
            opened: Any = session.Session(f"{self.folder}?{arguments}")  # type: ignore[no-untyped-call]  # chdb has none
            opened.query(schema.database("rankscope", "embedded"))
            opened.query("USE rankscope")
        except RuntimeError as error:
            raise UserError(
                f"the store {self.folder} cannot be opened ({in_words(str(error))}): its disk is full, its folder must "
                "not be written to, or its files are damaged; put a copy of it in its place, or record the run again"
            ) from error
        return opened

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"the store {self.folder} is damaged ({what}): put a copy of the folder in its place, "
            "or record the run again"
        )

    def migrate(self, profile: str = "embedded") -> None:
        if profile != "embedded":
            raise ValueError(f"a store in a folder has the profile 'embedded', not {profile!r}")
        super().migrate(profile)
        self._check_parts()

    def _check_parts(self) -> None:
        """UserError where records that had been acknowledged are in files that cannot be read any more."""
        lost = self.query(LOST_PARTS).to_pylist()
        if lost and (any(row["table"] == "batches" for row in lost) or not self._number(ALL_THERE)):
            count = sum(len(row["paths"]) for row in lost)
            tables = " and ".join(row["table"] for row in lost)
            aside = Path(lost[0]["paths"][0]).parent
            raise self._damaged(
                f"parts of {tables} that cannot be read: {count}, set aside in {aside}; delete them to read the rest"
            )

    def close(self) -> None:
        if self._session is None:
            return
        self._insert_session.close()
        self._session.close()
        self._session = self._insert_session = None
        EmbeddedStore.open_folder = None
        self._folder_lock.release()

    def _select(self, sql: str, params: Params) -> pa.Table:
        result = self._run(sql, "ArrowStream", dict(params))
        if not len(result):
            return pa.table({})
        # No copy: the table's buffers keep the memory view, and that keeps the result.
        with pa.ipc.open_stream(pa.py_buffer(result.get_memview().view())) as reader:
            return reader.read_all()

    def execute(self, sql: str) -> None:
        self._run(sql, "Null", {})

    def _insert(self, table: str, row_binary: bytes) -> None:
        self._opened()
        with self._inserting:
            try:
                inserter = self._insert_session.send_insert(f"INSERT INTO {table}", "RowBinary")
                inserter.append(row_binary)
                inserter.finish()
            except RuntimeError as error:
                raise self._refused(str(error)) from error

    def _run(self, sql: str, form: str, params: dict[str, int | float | str]) -> Any:
        try:
            return self._opened().query(sql, form, params=params or None)
        except RuntimeError as error:
            raise self._refused(str(error)) from error

    def _refused(self, text: str) -> StoreError | UserError:
        return self._damaged(in_words(text)) if any(word in text for word in DAMAGE) else StoreError(in_words(text))

    def _opened(self) -> Any:
        if self._session is None:
            raise StoreError(f"the store {self.folder} is closed")
        return self._session
