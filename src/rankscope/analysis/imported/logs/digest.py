"""What is kept of one log, and what its files say together of ranks and processes."""

from __future__ import annotations

import calendar
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rankscope.analysis.imported.examiner import Digest
from rankscope.records.imported.log_lines import EXIT, TOLD_TO_END, LogEvent, LogLines, RankLines

NEW_YEARS: Final = 31 * 10**9 * 31_557_600
"""Stamps before 2001 have no year of their own."""


@dataclass(frozen=True, slots=True)
class LogDigest(Digest):
    events: tuple[LogEvent, ...]
    ranks: tuple[RankLines, ...]
    world_size: int | None
    pids: tuple[tuple[int, int], ...]
    num_steps: int
    num_lines: int
    num_dropped: int
    few_losses: tuple[tuple[int, float], ...] = ()


def digest(log: LogLines) -> LogDigest:
    """All of its events: the reader bounds them."""
    return LogDigest(
        file=log.file, rank=log.rank, events=log.events, ranks=log.ranks, world_size=log.world_size, pids=log.pids,
        num_steps=log.num_steps, num_lines=log.num_lines, num_dropped=log.num_dropped, few_losses=log.few_losses,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """An event, the file that holds it, and the rank it concerns as far as all files know."""

    event: LogEvent
    file: str
    order: tuple[int, int]
    """Number of the file, line."""
    rank: int | None

    @property
    def short(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.event.line}"


@dataclass(frozen=True, slots=True)
class Job:
    """All logs together."""

    seen: tuple[Seen, ...]
    known: frozenset[int]
    """Ranks of which anything was read."""
    world_size: int | None
    spoke: dict[int, RankLines]
    """Of the prefixes of lines."""


def together(digests: Sequence[LogDigest], world_size: int | None) -> Job:
    """Ranks of processes come from whichever file names both."""
    pids: dict[int, int] = {}
    local: dict[int, int] = {}
    for d in digests:
        pids.update(d.pids)
        for event in d.events:
            if event.rank is not None and event.local_rank is not None and event.kind == EXIT:
                local[event.local_rank] = event.rank
    hosts = {event.host for d in digests for event in d.events if event.kind == EXIT and event.host}
    exits = [e for d in digests for e in d.events if e.kind == EXIT and e.pid is not None and e.local_rank is not None]
    for event in exits:
        assert event.pid is not None and event.local_rank is not None
        # Without a table that says otherwise one node is the whole job.
        if event.pid not in pids and len(hosts) <= 1:
            pids[event.pid] = local.get(event.local_rank, event.local_rank)
    seen = []
    for number, d in enumerate(digests):
        for event in d.events:
            rank = event.rank
            if rank is None and event.pid is not None:
                rank = pids.get(event.pid)
            if rank is None and event.local_rank is not None and len(hosts) <= 1 and (
                event.kind != EXIT or event.pid is None
            ):
                rank = local.get(event.local_rank, event.local_rank)
            if rank is None and event.kind not in (EXIT, TOLD_TO_END):
                rank = d.rank
            seen.append(Seen(replace(event, rank=rank), d.file, (number, event.line), rank))
    seen = _same_year(seen)
    spoke = {one.rank: one for d in digests for one in d.ranks}
    known = {one.rank for one in seen if one.rank is not None} | set(spoke) | set(pids.values())
    known |= {d.rank for d in digests if d.rank is not None}
    said = max((d.world_size for d in digests if d.world_size is not None), default=None)
    return Job(tuple(seen), frozenset(known), world_size or said, spoke)


def _same_year(seen: Sequence[Seen]) -> list[Seen]:
    """Stamps without a year are of the year of the others, where these are of one."""
    years = {time.gmtime(t // 10**9).tm_year for one in seen if (t := one.event.time_ns) is not None and t > NEW_YEARS}
    if len(years) != 1:
        return list(seen)
    (year,) = years
    return [replace(one, event=replace(one.event, time_ns=_in_year(one.event.time_ns, year))) for one in seen]


def _in_year(time_ns: int | None, year: int) -> int | None:
    if time_ns is None or time_ns > NEW_YEARS:
        return time_ns
    seconds, rest = divmod(time_ns, 10**9)
    then = time.gmtime(seconds)
    return calendar.timegm((year, *then[1:6])) * 10**9 + rest
