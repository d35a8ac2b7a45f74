"""Tables of a job's operations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

from rankscope.artefacts.opening import opened
from rankscope.artefacts.optable import timeline
from rankscope.artefacts.reader import Reader
from rankscope.records.imported.table import Table

COLUMNAR: Final = (b"PAR1", b"ARROW1\0\0")


class OperationTable(Reader):
    """What frameworks like Megatron record of themselves: a row per operation (`rank, step, optype, start_ts,
    duration`, and `dp_rank, stage, seq_id, mc, mb_id` where they have them) as Parquet, Arrow or Feather, or the same
    drawn as a Chrome JSON with a process per replica and a thread per rank and stream. The traces that were published
    with "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25) are such files."""

    name: ClassVar[str] = "operation table"
    certainty: ClassVar[int] = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        if head.startswith(COLUMNAR):
            return True
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return text.startswith((b"[", b"{")) and b'"ph"' in text and timeline.SIGNS.search(text) is not None

    def read(self, path: Path) -> Iterator[Table]:
        with opened(path) as stream:
            columnar = stream.read(8).startswith(COLUMNAR)
        if columnar:
            from rankscope.artefacts.optable import parquet

            yield parquet.read(path)
        else:
            yield timeline.read(path)
