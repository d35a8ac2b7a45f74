"""From what a user writes to the store that is meant."""

from __future__ import annotations

from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.store.sql_store import SqlStore


def open_store(location: str | Path) -> SqlStore:
    """The store in a folder, or at the `http(s)://` address of a ClickHouse. Not migrated yet. Raises UserError."""
    text = str(location)
    if isinstance(location, str) and "://" in text:
        if not text.startswith(("http://", "https://")):
            raise UserError(f"a store cannot be at {text}: give a folder or an http:// address of ClickHouse")
        from rankscope.store.clickhouse import ClickHouseStore  # an extra

        return ClickHouseStore(text)
    from rankscope.store.embedded import EmbeddedStore  # only where there is a folder

    return EmbeddedStore(location)
