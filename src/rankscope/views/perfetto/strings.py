"""Texts of a native trace, written once and named by a number afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.views.perfetto import wire

NAMES, CATEGORIES, ARGUMENTS, VALUES = 2, 1, 3, 29
"""Which table of `InternedData` (its field number): of events, categories, arguments, and of arguments' texts."""


class Strings:
    """The four tables; what is new in them waits until it is fetched, and has to be written before it is used."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, int]] = {table: {} for table in (NAMES, CATEGORIES, ARGUMENTS, VALUES)}
        self._new: list[bytes] = []

    def number(self, table: int, text: str) -> int:
        """The number of a text; from 1 on."""
        known = self._known[table]
        found = known.get(text)
        if found is None:
            found = known[text] = len(known) + 1
            self._new.append(wire.block(table, wire.number(1, found) + wire.text(2, text)))
        return found

    def numbers(self, table: int, texts: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of `texts[row]` for each row."""
        used, inverse = np.unique(rows, return_inverse=True)
        of = np.array([self.number(table, texts[at]) for at in used.tolist()], np.int64)
        return of[inverse] if len(of) else np.zeros(0, np.int64)

    def fetch_new(self) -> bytes:
        """The fields of an `InternedData` with what has come since the last time; empty where nothing has."""
        new, self._new = self._new, []
        return b"".join(new)
