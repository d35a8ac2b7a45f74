"""What every imported table has: which file it came from, and of which rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The contents of one file of another tool, in our words. Columns are numpy arrays of equal length.

    Times are in ns and only comparable within one table, unless the kind says otherwise.
    """

    file: str
    """As the user wrote it; of a member of an archive `archive.tar:member`."""
    rank: int | None
    """Global rank; None where neither the file's contents nor its name say it."""
