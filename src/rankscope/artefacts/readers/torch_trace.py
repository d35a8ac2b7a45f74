"""Compile logs of torch.compile (`TORCH_TRACE`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rankscope.artefacts.compile_log.collecting import Collecting
from rankscope.artefacts.compile_log.lines import HEADER, Damage, records
from rankscope.artefacts.file_rank import named_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.compile_log import CompileLog
from rankscope.records.imported.table import Table

"""Without one of these the last part of a name is random: `dedicated_log_torch_trace_x3k9.log`."""


class TorchTrace(Reader):
    """What `TORCH_TRACE=DIR` (torch 2.3 and newer) writes for each process: `dedicated_log_torch_trace_rank_0_*.log`.

    A record that is damaged is counted and left out; the others are used.
    """

    name = "compile log"
    certainty = 3

    def recognises(self, path: Path, head: bytes) -> bool:
        lines = head.split(b"\n")
        headers = [line for line in lines if HEADER.match(line) is not None]
        found = len(headers)
        # An ordinary log may hold such lines between others; of this one every other line is payload.
        others = sum(bool(line.strip()) and line[:1] != b"\t" for line in lines) - found
        return found >= max(others, 1) and any(b"torch" in line[:300] for line in headers)

    def read(self, path: Path) -> Iterator[Table]:
        collecting, damage, count, broken = Collecting(), Damage(), 0, ""
        with opened(path) as stream:
            try:
                for record in records(stream, damage):
                    count += 1
                    try:
                        collecting.take(record)
                    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
                        damage.at(record.line)
            except Unreadable as error:
                broken = str(error)
        if not count:
            raise Unreadable(broken or "has no whole record")
        said = named_rank(str(path))
        yield CompileLog(
            file=str(path),
            rank=collecting.rank if collecting.rank is not None else said,
            compilations=collecting.compilations(),
            breaks=tuple(collecting.breaks),
            start_ns=collecting.start_ns,
            num_records=count,
            num_broken=damage.count,
            first_broken_line=damage.first,
            num_dropped=collecting.num_dropped,
        )
        if broken:
            raise Unreadable(f"{broken}; what stands before it is used")
