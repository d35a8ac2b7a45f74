"""TensorBoard event files."""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.artefacts.tensorboard_events.checksum import all_masked
from rankscope.artefacts.tensorboard_events.records import Records, starts_like_one
from rankscope.artefacts.tensorboard_events.wire import event, signed, varint
from rankscope.records.imported.scalar_log import ScalarLog
from rankscope.records.imported.table import Table

TOGETHER: Final = 4096
"""Records whose check sums are computed at once."""
MOST_TAGS: Final = 100_000
_RANK: Final = re.compile(r"rank", re.IGNORECASE)


class Tensorboard(Reader):
    """`events.out.tfevents.*` of torch.utils.tensorboard, tensorboardX, TensorFlow 1 and 2, Keras, Lightning, and the
    Hugging Face Trainer: scalars as `simple_value` or as tensors. Pictures, texts, histograms, graphs are passed over.
    """

    name = "TensorBoard events"
    certainty = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        return starts_like_one(head)

    def read(self, path: Path) -> Iterator[Table]:
        points = _Points()
        with opened(path) as stream:
            records = Records(stream)
            for data, check in records:
                points.take(data, check)
        points.flush()
        if not records.count:
            raise Unreadable(records.broken or f"truncated: no complete record in {records.truncated_bytes:,} bytes")
        # Numbers at the end of the file's name are a time and process ids.
        parent = path.parent.name
        yield ScalarLog(
            file=str(path),
            rank=file_rank(parent) if _RANK.search(parent) else None,
            run=str(path.parent),
            tags=tuple(points.tags),
            tag=np.frombuffer(points.tag, np.int32),
            step=np.frombuffer(points.step, np.int64),
            time_ns=np.frombuffer(points.time_ns, np.int64),
            value=np.frombuffer(points.value, np.float64),
            num_records=records.count,
            num_damaged=points.damaged,
            truncated_bytes=records.truncated_bytes,
        )
        if records.broken is not None:
            raise Unreadable(f"{records.broken}; what stands before it is used")


class _Points:
    """Columns of scalars, of records whose check sums are right."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.tag, self.step, self.time_ns, self.value = array("i"), array("q"), array("q"), array("d")
        self.damaged = 0
        self._waiting: list[bytes] = []
        self._checks: list[int] = []
        self._known: dict[bytes, int] = {}
        """All of a record between its step and its value -> number of the tag: most records are alike."""

    def take(self, data: bytes, check: int) -> None:
        self._waiting.append(data)
        self._checks.append(check)
        if len(self._waiting) == TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Reads what waits."""
        # Pictures are only passed over: their check sums would take most of the time.
        small = [len(data) <= 1 << 14 for data in self._waiting]
        wanted = [data for data, is_small in zip(self._waiting, small, strict=True) if is_small]
        sums = iter(all_masked(wanted).tolist())
        for data, check, is_small in zip(self._waiting, self._checks, small, strict=True):
            if is_small and next(sums) != check:
                self.damaged += 1
                continue
            self._read(data)
        self._waiting.clear()
        self._checks.clear()

    def _read(self, data: bytes) -> None:
        if len(data) > 15 and data[0] == 0x09:
            step, at = (varint(data, 10)) if data[9] == 0x10 else (0, 9)
            number = self._known.get(data[at:-4])
            if number is not None:
                self._add(number, struct.unpack_from("<d", data, 1)[0], signed(step), struct.unpack("<f", data[-4:])[0])
                return
        try:
            wall, step, scalars = event(data)
        except (Unreadable, struct.error):
            self.damaged += 1
            return
        for tag, value in scalars:
            number = self.tags.setdefault(tag, len(self.tags))
            if number >= MOST_TAGS:
                raise Unreadable(f"has more than {MOST_TAGS:,} tags")
            self._add(number, wall, step, value)
        if len(scalars) == 1 and data[0] == 0x09:
            self._learn(data, scalars[0][0], scalars[0][1])

    def _learn(self, data: bytes, tag: str, value: float) -> None:
        """The usual form: time, step, one value that ends with a float."""
        at = varint(data, 10)[1] if data[9] == 0x10 else 9
        name = tag.encode("utf-8", "replace")
        if data[at : at + 1] == b"*" and data[-5 - len(name) :] == name + b"\x15" + struct.pack("<f", value):
            self._known[data[at:-4]] = self.tags[tag]

    def _add(self, number: int, wall: float, step: int, value: float) -> None:
        self.tag.append(number)
        self.step.append(step)
        self.time_ns.append(int(wall * 1e9) if math.isfinite(wall) and abs(wall) < 9e9 else -1)
        self.value.append(value)
