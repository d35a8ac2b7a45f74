"""What the recorder itself has to say, in the same slots as everyone else."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from rankscope.records.payload import NAME, Payload
from rankscope.records.rows import SLOT_DTYPE


class OwnRecords:
    """Collects the recorder's own records and names until they are taken."""

    def __init__(self, node: int) -> None:
        self.pid = os.getpid()
        self._node = node
        self._commit = 0
        self._slots: list[tuple[int, ...]] = []
        self._names: dict[str, int] = {}
        self._payloads: list[Payload] = []

    def add(  # noqa: PLR0917  in the order of a slot
        self, kind: int, name: str, time_ns: int, a: int, b: int, c: int = 0, *, duration_ns: int = 0
    ) -> None:
        """One record; `name` may be empty."""
        self._commit += 1
        id = self.name(name) if name else 0
        self._slots.append((self._commit, time_ns, duration_ns, kind, id, 0, a, b, c, self._commit))

    def name(self, text: str) -> int:
        known = self._names.get(text)
        if known is None:
            known = self._names[text] = len(self._names) + 1
            self._payloads.append(Payload(self._node, self.pid, NAME, known, text))
        return known

    def payload(self, kind: int, id: int, text: str) -> None:
        self._payloads.append(Payload(self._node, self.pid, kind, id, text))

    def take(self) -> tuple[NDArray[np.void], list[Payload]]:
        """Everything since the last call."""
        slots = np.array(self._slots, dtype=SLOT_DTYPE)
        payloads = self._payloads
        self._slots, self._payloads = [], []
        return slots, payloads
