"""Plain-text logs of jobs, launchers, schedulers, NCCL, drivers and kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

from rankscope.artefacts.file_rank import file_rank, named_rank
from rankscope.artefacts.logs.launcher_table import LauncherTable
from rankscope.artefacts.logs.messages import events, triggers
from rankscope.artefacts.logs.prefixes import Prefix, rank_of, split
from rankscope.artefacts.logs.tracebacks import CHAIN, FRAME, START, Tracebacks
from rankscope.artefacts.logs.training import Progress
from rankscope.artefacts.logs.wrapped import unwrapped
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.log_lines import (
    EXCEPTION,
    EXIT,
    PROGRESS,
    WATCHDOG,
    LogEvent,
    LogLines,
    Place,
    RankLines,
)
from rankscope.records.imported.table import Table

NOTHING: Final = "no line of a known log"
LONGEST: Final = 1 << 16
"""Bytes of a line that are looked at; what is beyond counts as another line."""
LOOKED_AT: Final = 4096
"""Characters of a line; no message of ours is longer, and patterns may take the square of it."""
BLOCK: Final = 256
"""Lines that are looked at together."""
MOST_ALIKE: Final = 100
"""Events of one kind, name and rank."""
MOST_EVENTS: Final = 50_000
MOST_RANKS: Final = 100_000
SOURCE: Final = frozenset({
    ".py",
        ".pyi", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go", ".js", ".ts", ".java", ".rb",
    ".sh", ".bash", ".slurm", ".sbatch", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".css", ".html", ".htm",
    ".xml", ".sql", ".csv", ".tsv", ".tex", ".cmake", ".proto", ".lock", ".patch", ".diff",
})  # fmt: skip
"""Endings of what may quote a log, and is none."""
PROSE: Final = frozenset((".md", ".markdown", ".rst"))
"""Of these only what stands between fences is a log."""
_PACKED: Final = re.compile(r"\.(?:gz|bz2|xz)$", re.IGNORECASE)
_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")
_LOOKS: Final = re.compile(
    r"^(?:(?:\S{0,40} ){0,2}\[?\d{4}[-/]\d\d[-/]\d\d.{1,60}\b(?:DEBUG|INFO|WARN\w*|ERROR|CRITICAL|FATAL|NVRM|kernel"
    r"|nvidia)\b"
    r"|\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d\.|kern\s+:\w+\s*:|\d{1,3},\d+,\d+,[^;]{0,80};|\[\s*\d+\.\d{6}\] "
    r"|\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ \S+: |\[(?:\w{3} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}\] "
    r"|\[(?:rank|default)\d+\]:|\S{1,80}:\d{1,9}:\d{1,9} \[\d+\] NCCL (?:INFO"
    r"|WARN)"
    r"|(?:INFO|WARNING|ERROR|DEBUG):[\w.]+:)"
)
_NCCL: Final = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[(?P<device>\d+)\] NCCL")
_NRANKS: Final = re.compile(r"\brank (\d+) nranks (\d+)|\brank=(\d+) nranks=(\d+)")
_WORLD: Final = re.compile(r"world[_ ]?size\W{1,6}(\d{1,6})\b", re.IGNORECASE)
_RANK_ID: Final = re.compile(r"RankID:(\d{1,6})\b")  # Ascend
_GLOO_TIMEOUT: Final = re.compile(r"Timed out waiting (\d{1,12}) ?ms for (?:recv|send) operation")
"""Gloo has no watchdog: who waits raises."""
_SPAWNED: Final = re.compile(r"-- Process (\d{1,5}) terminated with the following error")
_TABLE: Final = re.compile(r"^\W*(?:\d+:\s)?\W*(?:time|host|rank|exitcode|traceback)\s+:")
_FILE_OF_RANK: Final = re.compile(r"rank|worker|^\d{1,4}(?:\.|$)|(?:std(?:err|out)|log|out|err|dump"
                                  r"|proc)[_\-.]?\d{1,4}\b", re.I)
_NO_RANK: Final = re.compile(r"slurm|kmsg|dmesg|syslog|messages|journal|job|events?[_-]", re.I)


class Logs(Reader):
    """What PyTorch, torchrun, NCCL, Slurm, Kubernetes, the NVIDIA driver and the kernel write as text, and what
    training programs print of their progress; of one rank or of many in one file, with whatever stands before a line.
    """

    name = "log"
    certainty = 0

    def recognises(self, path: Path, head: bytes) -> bool:
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return True
        control = sum(head.count(bytes((code,))) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15))
        return bool(head) and control * 100 <= len(head)

    def read(self, path: Path) -> Iterator[Table]:
        suffix = Path(_PACKED.sub("", path.name)).suffix.lower()
        if suffix in SOURCE:
            raise Unreadable(NOTHING)
        log, broken = _Log(), ""
        with opened(path) as stream:
            try:
                for block in _blocks(_lines(stream, fenced=suffix in PROSE)):
                    trigger = triggers("\n".join(block))
                    for line in block:
                        log.take(line, reports=trigger is not None and trigger.search(line) is not None)
            except Unreadable as error:
                broken = str(error)
        table = log.table(str(path), _rank_of_file(path))
        if table is None:
            raise Unreadable(broken or NOTHING)
        yield table
        curves = log.progress.table(str(path), table.rank)
        if curves is not None:
            yield curves
        if broken:
            raise Unreadable(f"{broken}; what stands before it is used")


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    try:
        for line in lines:
            block.append(line)
            if len(block) == BLOCK or len(line) > LONGEST // 2:
                yield block
                block = []
    except Unreadable:
        yield block  # what stands before the damage
        raise
    yield block


def _lines(stream: BinaryIO, *, fenced: bool) -> Iterator[str]:
    """Decoded, without what ends them; a progress bar's last state."""
    bom = stream.read(2) if stream.seekable() else b""
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(bom)
    if encoding is None and bom:
        stream.seek(0)
    if encoding is not None:
        rest = stream.read(64 << 20).decode(encoding, "replace")
        yield from rest.splitlines()
        return
    inside = not fenced
    while raw := stream.readline(LONGEST):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if "\r" in line:
            line = line.rsplit("\r", 1)[-1]
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        if fenced and line.lstrip().startswith("```"):
            inside = not inside
            continue
        if line[:1] == "{" and inside:
            yield from unwrapped(line)
        else:
            yield line if inside else ""


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(slots=True)
class _Spoken:
    lines: int = 0
    last_line: int = 0
    last_text: str = ""


@dataclass(slots=True)
class _Log:
    """One file while it is read."""

    number: int = 0
    known: int = 0
    """Lines that look like those of a log."""
    dropped: int = 0
    found: list[tuple[LogEvent, int, int]] = field(default_factory=list)
    """Event, step before it, lines of progress before it."""
    later: dict[int, int] = field(default_factory=dict)
    """Lines of progress before an event -> step of the next such line."""
    alike: Counter[tuple[str, str, int | None]] = field(default_factory=Counter)
    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    launcher: LauncherTable = field(default_factory=LauncherTable)
    progress: Progress = field(default_factory=Progress)
    spoken: dict[int, _Spoken] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    world: int | None = None
    spawned: int | None = None
    """Process of torch.multiprocessing.spawn whose traceback comes."""
    named: set[int] = field(default_factory=set)
    """Ranks that lines name as their own elsewhere than in front."""
    clock: str = ""
    clock_ns: int | None = None
    """Of `clock`, once it has been asked for."""

    def take(self, line: str, *, reports: bool) -> None:
        """`reports`: it has a word without which no message is one."""
        self.number += 1
        if not line:
            return
        line = line[:LOOKED_AT]
        if _CLOCK.search(line, 0, 80) is not None:
            self.clock, self.clock_ns = line[:160], None
        if "RankID:" in line and (own := _RANK_ID.search(line)) is not None:
            self.named.add(int(own[1]))
        rank = rank_of(line)
        if rank is not None and len(self.spoken) < MOST_RANKS:
            one = self.spoken.setdefault(rank, _Spoken())
            one.lines += 1
            if "ProcessGroup" not in line and " NCCL " not in line:
                one.last_line, one.last_text = self.number, line[:160]
        if self.known < 10 and _LOOKS.match(line) is not None:
            self.known += 1
        if ("oss" in line or "step" in line) and self.progress.take(line, None):
            self.later.setdefault(self.progress.count - 1, self.progress.last)
            return
        traceback = START in line or FRAME in line or CHAIN in line
        if traceback or self.tracebacks.waits():
            prefix = split(line)
            before = len(self.found)
            writer = prefix.rank, prefix.local_rank, prefix.host, prefix.pid
            for event in self.tracebacks.take(writer, prefix.message, self.number):
                if prefix.rank is None and self.launcher.tells_of is not None:
                    prefix.rank, self.launcher.tells_of = self.launcher.tells_of, None
                self._keep_error(event, prefix)
            if self.tracebacks.passed_on is not None:
                self._place_last(prefix, *self.tracebacks.passed_on)
            if len(self.found) > before or self.tracebacks.passed_on is not None:
                return
        elif "-- Process " in line and (spawned := _SPAWNED.match(split(line).message)) is not None:
            self.spawned = int(spawned[1])
        if reports or "rank" in line or "orld" in line or _TABLE.match(line) is not None:
            self._look(line, reports=reports)

    def _look(self, line: str, *, reports: bool) -> None:
        """At a line that may report something."""
        nccl = _NCCL.search(line, 0, 200) if "NCCL" in line else None
        if "ranks" in line or "orld" in line:
            self._sizes(line, nccl)
        if _TABLE.match(line) is not None and (row := self.launcher.take(split(line).message, self.number)) is not None:
            if row.pid is not None and row.rank is not None:
                self.pids[row.pid] = row.rank
            self._keep(row, Prefix())
            return
        if not reports:
            return
        prefix = split(line)
        if nccl is not None:
            pid = int(nccl["pid"])
            prefix.rank = self.pids.get(pid, prefix.rank)
            prefix.host, prefix.local_rank = nccl["host"], int(nccl["device"])
        for event in events(prefix.message, self.number):
            self._keep(event, prefix)

    def _sizes(self, line: str, nccl: re.Match[str] | None) -> None:
        if (found := _NRANKS.search(line)) is not None:
            rank, size = int(found[1] or found[3]), int(found[2] or found[4])
            if nccl is not None and len(self.pids) < MOST_RANKS and size >= (self.world or 0):
                self.pids[int(nccl["pid"])] = rank  # a smaller group has numbers of its own
            self.world = max(size, self.world or 0)
        elif (world := _WORLD.search(line)) is not None and 0 < int(world[1]) < 1_000_000:
            self.world = max(int(world[1]), self.world or 0)

    def _keep_error(self, event: LogEvent, prefix: Prefix) -> None:
        """An exception, in the name of the process that torch.multiprocessing says it is of."""
        if event.name.endswith("ProcessExitedException"):  # not this process's, but another one's end
            for end in events(event.text, event.line):
                self._keep(end, prefix)
            return
        if (late := _GLOO_TIMEOUT.search(event.text)) is not None:
            waited = replace(event, kind=WATCHDOG, name="", timeout_ms=float(late[1]))
            self._keep(waited, prefix)
        if self.spawned is not None and event.local_rank is None:
            event = replace(event, local_rank=self.spawned)
            self.spawned = None
        self._keep(event, prefix)

    def _place_last(self, prefix: Prefix, place: Place | None) -> None:
        """What was raised in a library is placed where the user's code got it."""
        if not self.found or place is None:
            return
        event, step, lines = self.found[-1]
        if event.kind == EXCEPTION and event.place is None and event.rank == prefix.rank:
            self.found[-1] = replace(event, place=place), step, lines

    def _keep(self, event: LogEvent, prefix: Prefix) -> None:
        rank = event.rank
        if event.kind in (WATCHDOG, PROGRESS) and prefix.rank is not None:
            rank = prefix.rank  # the message counts within its group
        elif rank is None and event.kind != EXIT:
            rank = prefix.rank
        key = (event.kind, event.name, rank)
        self.alike[key] += 1
        if self.alike[key] > MOST_ALIKE or len(self.found) >= MOST_EVENTS:
            self.dropped += 1
            return
        if self.clock_ns is None and self.clock:
            self.clock_ns = split(self.clock).time_ns
        time_ns = event.time_ns if event.time_ns is not None else prefix.time_ns
        event = replace(
            event,
            rank=rank,
            time_ns=time_ns if time_ns is not None else self.clock_ns,
            host=event.host or prefix.host,
            local_rank=event.local_rank if event.local_rank is not None else prefix.local_rank,
            pid=event.pid if event.pid is not None else prefix.pid,
        )
        self.found.append((event, self.progress.last, self.progress.count))

    def table(self, file: str, rank: int | None) -> LogLines | None:
        """None where nothing was recognised."""
        if not (self.found or self.known or self.progress.count):
            return None
        total = self.progress.count
        made = (
            replace(
                event,
                step_before=step if count else None,
                step_after=self.later.get(count),
                progress_after=total - count,
            )
            for event, step, count in self.found
        )
        several = len(self.spoken) > 1
        if rank is None and not self.spoken and len(self.named) == 1:
            rank = next(iter(self.named))
        return LogLines(
            file=file,
            rank=None if several else rank if rank is not None else next(iter(self.spoken), None),
            events=tuple(made),
            num_lines=self.number,
            num_dropped=self.dropped,
            ranks=tuple(
                RankLines(number, one.lines, one.last_line, split(one.last_text).time_ns, one.last_text)
                for number, one in sorted(self.spoken.items())
            ),
            world_size=self.world,
            pids=tuple(self.pids.items()),
            num_steps=total,
            few_losses=self.progress.few(),
        )


def _rank_of_file(path: Path) -> int | None:
    """torchrun's folders are named like local ranks: `attempt_0/3/stderr.log`."""
    if path.name in ("stdout.log", "stderr.log") and path.parent.name.isdigit():
        return int(path.parent.name)
    name, named = path.name, named_rank(str(path))
    if named is not None:
        return named
    if "rank" in name.lower() or (_FILE_OF_RANK.search(name) and not _NO_RANK.search(name)):
        return file_rank(name)
    return None
