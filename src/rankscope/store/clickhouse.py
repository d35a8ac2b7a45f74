"""The store on a ClickHouse server or cluster, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

from rankscope.base.errors import UserError
from rankscope.store import schema
from rankscope.store.sql_store import SqlStore
from rankscope.store.store import Params, StoreError, in_words

DEFAULT_DATABASE = "rankscope"

ONE_BLOCK = {"async_insert": 0, "min_insert_block_size_rows": 1_048_449, "min_insert_block_size_bytes": 0}
"""An insert is answered when it is committed, and is one part whatever the server's defaults are."""


class ClickHouseStore(SqlStore):
    """A store at `http(s)://user:password@host:port/database`; the database is `rankscope` if none is given."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self.database = parts.path.strip("/") or DEFAULT_DATABASE
        if not self.database.isidentifier():
            raise UserError(f"{self.database!r} is no name of a database; write {parts.scheme}://host:port/name")
        self.address = f"{parts.scheme}://{parts.hostname}:{parts.port or 8123}/{self.database}"
        self._client = self._connect(
            interface=parts.scheme,
            host=parts.hostname or "localhost",
            port=parts.port or 8123,
            username=unquote(parts.username or "default"),
            password=unquote(parts.password or ""),
        )

    def _connect(self, **where: Any) -> Any:
        try:
            import clickhouse_connect  # optional
            from clickhouse_connect.driver.exceptions import ClickHouseError
        except ImportError as error:
            raise UserError(
                f"a store at {self.address} needs the ClickHouse client: pip install 'rankscope[clickhouse]'"
            ) from error
        self._refused = ClickHouseError
        try:
            # No session: its server would refuse queries of two threads at once.
            client = clickhouse_connect.get_client(**where, compress=False, autogenerate_session_id=False)
        except ClickHouseError as error:
            raise UserError(f"no ClickHouse answers at {self.address}: {in_words(str(error))}") from error
        # Only now: the database may still have to be made.
        client.database = self.database
        return client

    def migrate(self, profile: str = "server") -> None:
        self._call(self._client.command, schema.database(self.database, profile), use_database=False)
        super().migrate(profile)

    def close(self) -> None:
        self._client.close()

    def _select(self, sql: str, params: Params) -> pa.Table:
        table = self._call(self._client.query_arrow, sql, parameters=dict(params) or None)
        return table if isinstance(table, pa.Table) else pa.table({})

    def execute(self, sql: str) -> None:
        self._call(self._client.command, sql)

    def _insert(self, table: str, row_binary: bytes) -> None:
        # Not `raw_insert`: it sends the rows again when the connection breaks, although they may have been committed.
        self._call(self._client.command, f"INSERT INTO {table} FORMAT RowBinary", data=row_binary, settings=ONE_BLOCK)

    def _call(self, method: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except self._refused as error:
            raise StoreError(in_words(str(error))) from error
