"""From an older version of the schema to the newest one, step by step; a new store is made as it is now.

A migration that was cut short runs again from its start, so its statements must allow that. Released ones never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rankscope.store import schema

MIGRATIONS: Final[tuple[tuple[int, Callable[[str], list[str]]], ...]] = ((3, schema.without_views),)
"""Version -> the statements, for a profile, that bring a store of the version before up to it. Version 1 had no totals
yet; version 2 kept them."""
NEWEST: Final = MIGRATIONS[-1][0]


def bookkeeping(profile: str) -> str:
    """The table that says which versions a store has. `views`: what versions before 3 wrote of their views."""
    return (
        "CREATE TABLE IF NOT EXISTS migrations (version UInt32, views UInt32, migrated_at DateTime64(3, 'UTC')) "
        f"{schema.engine(profile)} ORDER BY version"
    )
