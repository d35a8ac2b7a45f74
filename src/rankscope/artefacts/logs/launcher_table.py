"""The table with which torchrun tells of failed processes, one field a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rankscope.artefacts.logs.prefixes import split
from rankscope.records.imported.log_lines import EXIT, LogEvent

_FIELD: Final = re.compile(r"^\W{0,8}(time|host|rank|exitcode|error_file|traceback)\s+: ?(.*)")
_RANK: Final = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_CODE: Final = re.compile(r"(-?\d+) \(pid: (\d+)\)")


@dataclass(slots=True)
class LauncherTable:
    """The rows so far."""

    time_ns: int | None = None
    host: str = ""
    rank: int | None = None
    local_rank: int | None = None
    inside: bool = False
    tells_of: int | None = None
    """Rank whose traceback the table goes on with."""

    def take(self, message: str, number: int) -> LogEvent | None:
        """The process whose row is complete with this line."""
        field = _FIELD.match(message)
        if field is None:
            return None
        name, value = field[1], field[2].strip()
        self.tells_of = self.rank if name == "traceback" and value.startswith("Traceback") else None
        if name == "time":
            self.time_ns = split(value.replace("_", " ")).time_ns
            self.inside = True
        elif name == "host":
            self.host = value[:200]
        elif name == "rank" and (found := _RANK.match(value)) is not None:
            self.rank, self.local_rank = int(found[1]), int(found[2])
        elif name == "exitcode" and self.inside and (code := _CODE.match(value)) is not None:
            return LogEvent(
                kind=EXIT, line=number, text=f"exitcode: {value}", time_ns=self.time_ns, rank=self.rank,
                local_rank=self.local_rank, pid=int(code[2]), host=self.host, name="torchrun", number=int(code[1]),
            )  # fmt: skip
        return None
