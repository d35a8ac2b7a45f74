"""What stands before the message of a log line: rank, time, host, level."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from typing import Final

_RANK: Final = re.compile(
    r"\s*(?:\[\s*(?:global[_ ]?)?rank[ _:=]?\s*(?P<a>\d{1,6})\]\s*:?"  # PyTorch, and many programs
    r"|(?P<b>\d{1,6}):(?=\s)"  # srun --label
    r"|\[\d+,(?P<c>\d{1,6})\]\s*<std(?:err|out)>\s*:?"  # mpirun --tag-output
    r"|\(\s*rank\s*=?\s*(?P<d>\d{1,6})\s*\)\s*:?"
    r"|rank[ _=]?(?P<e>\d{1,6})\s*[:|]"
    r"|\[(?:R|proc|process|worker|GPU)[ _]?(?P<f>\d{1,6})\]\s*:?)\s?",
    re.IGNORECASE,
)
_LOCAL: Final = re.compile(r"\s*\[(?:default|trainer|local[_ ]?rank[ _:=]?)\s*(\d{1,5})\]\s*:?\s?", re.IGNORECASE)
_TIME: Final = re.compile(
    r"\s*[\[(]?(?P<y>\d{4}|\d{2}(?=[-/]\d\d[-/]))[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T \-_]{1,2}"
    r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?\s?(?P<z>Z|UTC|[+-]\d\d:?\d\d)?[\])]?\s*[:,|]?\s*"
)
_GLOG: Final = re.compile(
    r"\s*\[?[IWEFCDV](?P<mo>\d{1,2})(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9})\s+(?:\d+\s+)?"
    r"(?P<where>[\w./<>-]+:\d+)\]\s*"
)
"""glog. PyTorch's own lines write no zero before the month: `[E703 10:00:00.1 ...]`."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG: Final = re.compile(
    rf"\s*(?:\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?P<mon>{'|'.join(_MONTHS)})\s+(?P<d>\d{{1,2}}) "
    r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d{1,9}))?(?: (?P<y>\d{4}))?\]?:?\s+"
)
_BOOT: Final = re.compile(r"\s*\[\s*\d+\.\d{4,9}\]\s+|\d{1,3},\d+,\d+,[^;]{0,200};")
"""dmesg and /dev/kmsg: seconds since the machine started, which no other log shares."""
_FACILITY: Final = re.compile(r"(?:kern|user|daemon|syslog)\s*:\s*\w+\s*:\s*")
_HOST: Final = re.compile(r"(?P<host>[\w.-]+) (?:kernel|systemd\[\d+\]|[\w-]+\[\d+\]):\s+")
_WRAPPED: Final = re.compile(
    r"\([A-Za-z_]\w{0,60} pid=(?P<pid>\d{1,9})(?:, ip=(?P<a>[\w.:-]{1,60}))?\) ?"  # Ray
    r"|\[pod/(?P<b>[\w.-]{1,100})(?:/[\w.-]{1,100})?\] ?"  # kubectl logs --prefix
    r"|std(?:out|err) [FP] "  # containerd, after the time
    r"|(?P<c>[a-z][\w.-]{0,60}) {1,20}\| "  # docker compose
    r"|(?P<d>(?:\d{1,3}\.){3}\d{1,3}|(?=[a-z.-]{0,60}\d)[a-z][a-z\d.-]{0,60}): "  # pdsh
    r"(?=\s|\[|Traceback|(?:[a-z]\w*\.)*[A-Z]\w*(?:Error|Exception))"
)
"""What a launcher on other machines puts before each line: who wrote it."""
NO_YEAR: Final = 2000
"""Stands for the year where a stamp has none."""


@dataclass(slots=True)
class Prefix:
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    time_ns: int | None = None
    host: str = ""
    message: str = ""


def split(line: str) -> Prefix:
    """The parts before the message; times without a zone are taken as UTC."""
    found, at = Prefix(), 0
    for _ in range(8):
        start = at
        if (m := _RANK.match(line, at)) is not None:
            weak = m["b"] or m["c"]  # the number of a task, which may be a whole node's launcher
            if found.rank is None or not weak:
                found.rank = int(next(g for g in m.groups() if g is not None))
            at = m.end()
        elif (m := _LOCAL.match(line, at)) is not None:
            found.local_rank = int(m[1])
            at = m.end()
        elif (m := _TIME.match(line, at) or _GLOG.match(line, at) or _SYSLOG.match(line, at)) is not None:
            found.time_ns = found.time_ns if found.time_ns is not None else _ns(m.groupdict())
            at = m.end()
        elif (m := _FACILITY.match(line, at) or _BOOT.match(line, at)) is not None:
            at = m.end()
        elif (m := _HOST.match(line, at)) is not None:
            found.host = m["host"]
            at = m.end()
        elif (m := _WRAPPED.match(line, at)) is not None:
            found.pid = int(m["pid"]) if m["pid"] is not None else found.pid
            found.host = next((host for host in m.group("a", "b", "c", "d") if host), found.host)
            at = m.end()
        if at == start:
            break
    found.message = line[at:]
    return found


def rank_of(line: str) -> int | None:
    """The rank that a line begins with; cheaper than all of `split`."""
    m = _RANK.match(line)
    return int(next(g for g in m.groups() if g is not None)) if m is not None else None


def _ns(part: dict[str, str | None]) -> int | None:
    year = int(part.get("y") or NO_YEAR)
    year += 2000 if year < 100 else 0
    month = int(part["mo"] or 0) if part.get("mo") else _MONTHS.index(part.get("mon") or "Jan") + 1
    day, hour, minute, second = (int(part[key] or 0) for key in ("d", "h", "mi", "s"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 62):
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    zone = part.get("z") or ""
    if zone[:1] in ("+", "-"):
        digits = zone[1:].replace(":", "")
        offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds * 10**9 + int(((part.get("f") or "") + "0" * 9)[:9])
