"""The versions of the schema, oldest first; each brings a store of the version before up to itself.

A migration that was cut short runs again from its start, so its statements must allow that. Released ones never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rankscope.store import schema

MIGRATIONS: Final[tuple[tuple[int, Callable[[str], list[str]]], ...]] = (
    (1, schema.base_tables),
    (2, schema.rollups),
)
"""Version -> its statements for a profile."""


def bookkeeping(profile: str) -> str:
    """The table that says which versions a store has, and which text its views were made from."""
    return (
        "CREATE TABLE IF NOT EXISTS migrations (version UInt32, views UInt32, migrated_at DateTime64(3, 'UTC')) "
        f"{schema.engine(profile)} ORDER BY version"
    )
