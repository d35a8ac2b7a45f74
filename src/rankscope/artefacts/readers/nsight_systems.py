"""Exports of Nsight Systems."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.nsys.activity import WHOLE, activity
from rankscope.artefacts.nsys.database import MAGIC, database
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.table import Table

SIGNS: Final = (b"CUPTI_ACTIVITY_KIND_", b"TARGET_INFO_", b"META_DATA_EXPORT", b"NVTX_EVENTS")


class NsightSystems(Reader):
    """SQLite exports of Nsight Systems (`nsys export --type sqlite`, `nsys stats`), schemas 3.0 to 3.25, whole or with
    tables and columns cut out. Opened for reading only; its views, triggers and extensions are not run."""

    name: ClassVar[str] = "Nsight Systems export"
    certainty: ClassVar[int] = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        if not head.startswith(MAGIC):
            return False
        if any(sign in head for sign in SIGNS):
            return True
        # With many tables their names stand in later pages.
        try:
            with database(path) as db:
                return any(db.has(name) for name in WHOLE)
        except (Unreadable, OSError, sqlite3.Error):
            return False

    def read(self, path: Path) -> Iterator[Table]:
        try:
            with database(path) as db:
                found = activity(db, str(path), file_rank(str(path)))
        except OSError as error:
            raise Unreadable(f"cannot be opened ({error.strerror or error})") from error
        yield found
