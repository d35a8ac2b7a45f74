"""An object store that takes objects in parts."""

from __future__ import annotations

import time

PART_BYTES = 1 << 20
SECONDS_PER_PART = 0.5


class ObjectStore:
    def __init__(self) -> None:
        self.parts: dict[str, int] = {}

    def put(self, key: str, data: bytes) -> None:
        for start in range(0, len(data), PART_BYTES):
            time.sleep(SECONDS_PER_PART)  # the upload of one part
            self.parts[f"{key}/{start // PART_BYTES}"] = len(data[start : start + PART_BYTES])
