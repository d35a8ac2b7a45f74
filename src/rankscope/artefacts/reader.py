"""The seam for a new format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from rankscope.records.imported.table import Table


class Unreadable(Exception):
    """A file cannot be used; the text says what is wrong and where (byte, line, field), in one line."""


class Reader:
    """Turns the files of one format into tables. One file in `artefacts/readers`, named like the format.

    It never executes what a file contains, holds no more than the file's own tables, and reads compressed files
    through `artefacts.opening.opened`. The class's docstring says which tool writes the format, and its versions.
    """

    name: ClassVar[str]
    """The kind that the report shows for such a file."""
    certainty: ClassVar[int] = 1
    """Of two readers that recognise a file the one with the higher number is asked: 3 and 2 for a format with a
    signature of its own, 1 for a shape, 0 for any text."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether this is such a file, from its name and its first 64 KiB (decompressed). Never raises."""
        raise NotImplementedError

    def read(self, path: Path) -> Iterator[Table]:
        """Its tables, one after the other; raises `Unreadable` where it is broken. A part that can be used is yielded
        before that.

        `table.file` is `str(path)`; whoever unpacked an archive puts the member's name in its place.
        """
        raise NotImplementedError
