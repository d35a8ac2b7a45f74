"""What is kept of one compile log: each function with its recompilations, each graph in a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analysis.imported.examiner import Digest
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Location
from rankscope.records.imported.compile_log import CodePlace, Compilation, CompileLog, GraphBreak

WAIT = "wait_tensor"
MOST_REASONS = 3
HARD = (
    "BackendCompilerFailed", "InductorError", "InternalTorchDynamoError", "TorchRuntimeError",
    "FailOnRecompileLimitHit", "RecompileError",
)  # fmt: skip
"""Failures that are raised where they are not suppressed. After others, as `Unsupported`, the function runs as is."""
_NEWEST = re.compile(r"^!?[\d/]+: ")


@dataclass(frozen=True, slots=True)
class Function:
    """All compilations of one code object in one process."""

    place: CodePlace | None
    compilations: int
    recompile_s: float | None
    """In all compilations but the first two: a second one, with sizes that may change, is how torch.compile is meant
    to work. None: not logged."""
    reasons: tuple[tuple[str, int], ...]
    """Guards that failed, without what changes from time to time, the most frequent first."""
    limit: int | None


@dataclass(frozen=True, slots=True)
class Graph:
    """One compilation, for comparing ranks."""

    id: str
    place: CodePlace | None
    cache: str
    schedule: tuple[str, ...] | None
    """Collectives in their order, without the waits; None: not logged."""


@dataclass(frozen=True, slots=True)
class Unwaited:
    """A graph that calls more collectives than it waits for."""

    graph: str
    place: CodePlace | None
    collectives: int
    waits: int
    planned_waits: int | None


@dataclass(frozen=True, slots=True)
class CompileDigest(Digest):
    functions: tuple[Function, ...]
    graphs: tuple[Graph, ...]
    unwaited: tuple[Unwaited, ...]
    spare_waits: int
    """Waits beyond their own collectives, in all graphs: results of collectives of other graphs."""
    hits: int
    misses: int
    breaks: int
    commonest_break: GraphBreak | None
    seconds: float | None
    raised: tuple[str, CodePlace | None] | None
    """The failure of the last compilation, where it was raised."""
    suppressed: int
    """Functions that run uncompiled after a failure."""
    start_ns: int | None
    num_records: int
    num_broken: int
    first_broken_line: int | None
    num_dropped: int

    @property
    def who(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.file.rsplit("/", 1)[-1]


def digest_of(table: CompileLog) -> CompileDigest:
    every = table.compilations
    times = [c.seconds for c in every if c.seconds is not None]
    outcomes = Counter(word for c in every for word in c.fx_cache.split(",") if word)
    last = every[-1] if every else None
    raised = last is not None and not last.suppressed and last.failure.startswith(HARD)
    places = Counter(b.place for b in table.breaks)
    worst = places.most_common(1)[0][0] if places else None
    return CompileDigest(
        file=table.file, rank=table.rank, functions=_functions(every),
        graphs=tuple(_graph(c) for c in every),
        unwaited=tuple(_unwaited(c) for c in every if c.collectives > c.waits),
        spare_waits=sum(max(0, c.waits - c.collectives) for c in every),
        hits=outcomes["hit"], misses=outcomes["miss"],
        breaks=len(table.breaks), commonest_break=next((b for b in table.breaks if b.place == worst), None),
        seconds=sum(times) if times else None,
        raised=(last.failure, last.caller or last.code) if raised and last is not None else None,
        suppressed=sum(bool(c.failure) and (c.suppressed or not c.failure.startswith(HARD)) for c in every),
        start_ns=table.start_ns, num_records=table.num_records, num_broken=table.num_broken,
        first_broken_line=table.first_broken_line, num_dropped=table.num_dropped,
    )  # fmt: skip


def _functions(every: Sequence[Compilation]) -> tuple[Function, ...]:
    frames: dict[tuple[str, int], list[Compilation]] = {}
    for one in every:
        frames.setdefault((one.autograd, one.frame), []).append(one)
    found = []
    for own in frames.values():
        again = sorted(own, key=lambda c: c.count)[1:]
        if not again:
            continue
        times = [c.seconds for c in again[1:] if c.seconds is not None]
        reasons = Counter(guard(c.reasons[0]) for c in again if c.reasons)
        limit = next((c.limit for c in own if c.limit is not None), None)
        # Of a wrapper in torch the line that calls it says more.
        place = own[0].code if own[0].code is not None and "/torch/" not in own[0].code.file else own[0].caller
        seconds = sum(times) if times else None
        found.append(Function(place or own[0].code, len(own), seconds, tuple(reasons.most_common(MOST_REASONS)), limit))
    return tuple(found)


def guard(reason: str) -> str:
    """`tensor 'x' size mismatch at index 0` of `0/1: tensor 'x' size mismatch at index 0. expected 3, actual 4`."""
    text = _NEWEST.sub("", reason).split(". expected")[0].split(", actual")[0]
    return re.sub(r"\d{6,}", "N", text).strip()[:160]


def _graph(one: Compilation) -> Graph:
    schedule = tuple(op for op in one.planned if op != WAIT) if one.planned is not None else None
    return Graph(one.id, one.code, one.fx_cache, schedule)


def _unwaited(one: Compilation) -> Unwaited:
    planned = one.planned.count(WAIT) if one.planned is not None else None
    return Unwaited(one.graph, one.caller or one.code, one.collectives, one.waits, planned)


def located(place: CodePlace | None) -> Location | None:
    return Location(place.file, place.line, place.function) if place is not None and place.file else None


def at(place: CodePlace | None) -> str:
    """`kernel (train.py:6)`."""
    if place is None:
        return "a function that the log does not name"
    where = f"{place.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{place.line}"
    return f"{place.function} ({where})" if place.function else where


def who(logs: Sequence[CompileDigest]) -> str:
    """The ranks of these logs, or their files."""
    known = sorted({log.rank for log in logs if log.rank is not None})
    if known:
        return numbered(known)
    return logs[0].who if len(logs) == 1 else f"{logs[0].who} and {len(logs) - 1} more"


def ranks_of(logs: Sequence[CompileDigest]) -> tuple[int, ...]:
    return tuple(sorted({log.rank for log in logs if log.rank is not None}))
