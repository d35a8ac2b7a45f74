"""Compile logs of several ranks: what is compiled again and again, what failed, and where ranks differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.records.imported.compile_log import Compilation, CompileLog
from rankscope.records.imported.table import Table

OFTEN = 4
"""Times that one frame is compiled again: twice are usual (the first other shape, then dynamic shapes), and one more
mode (evaluation) or dtype makes no fault yet."""
NOTHING = Cost(None, None, None)


@dataclass(frozen=True, slots=True)
class CompileDigest(Digest):
    """All compilations of a rank: some lines each."""

    compilations: tuple[Compilation, ...]
    damaged: int


class CompileLogs(Examiner):
    """Counts compilations by frame, and compares their ids, caches and collectives over ranks."""

    reads = CompileLog

    def digest(self, table: Table) -> CompileDigest:
        assert isinstance(table, CompileLog)
        return CompileDigest(table.file, table.rank, table.compilations, table.damaged)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        logs = [one for one in digests if isinstance(one, CompileDigest)]
        by_rank = {one.rank: one for one in logs if one.rank is not None}
        damaged = sum(one.damaged for one in logs)
        missing = [("compile logs", "whole lines", f"{damaged} lines could not be understood")] if damaged else []
        if len(by_rank) < 2:
            missing.append(("differences between ranks", "the logs of two ranks", "one rank's log was given"))
        return Answer(
            findings=(*_schedules(by_rank), *_again(logs)),
            world_size=world_size or (max(by_rank) + 1 if by_rank else None),
            examined=any(one.compilations for one in logs),
            not_examined=tuple(missing),
            notes=(*(_about(one) for one in logs), *_differences(by_rank)),
        )


def _about(log: CompileDigest) -> str:
    failed = sum(bool(one.error) for one in log.compilations)
    again = sum(bool(one.reason) for one in log.compilations)
    caches = Counter(name for one in log.compilations for name in one.caches)
    parts = [f"{len(log.compilations)} compilations, {again} of them again, {failed} failed"]
    parts += [f"{count} {name}" for name, count in sorted(caches.items())]
    return f"{log.file.rsplit('/', 1)[-1]}: {', '.join(parts)}"


def _again(logs: Sequence[CompileDigest]) -> Iterator[Finding]:
    """The frame that is compiled most often, if that is often."""
    per_frame: Counter[tuple[int | None, str]] = Counter()
    for log in logs:
        for one in log.compilations:
            if one.reason:
                per_frame[log.rank, one.id.split("/")[0]] += 1
    often = {key: count for key, count in per_frame.items() if count >= OFTEN}
    if not often:
        return
    (rank, frame), most = max(often.items(), key=lambda item: item[1])
    log = next(one for one in logs if one.rank == rank)
    mine = [one for one in log.compilations if one.id.split("/")[0] == frame and one.reason]
    ranks = tuple(sorted({r for r, _ in often if r is not None}))
    seconds = [one.seconds for one in mine if one.seconds is not None]
    last = mine[-1]
    reason = last.reason.partition(": ")[2] or last.reason
    yield Finding(
        cause="recompilation",
        severity="warning",
        confidence=0.85,
        title=f"{last.function or 'a function'} is compiled again {most} times: {reason}",
        ranks=ranks,
        all_ranks=bool(ranks) and len(ranks) == len({one.rank for one in logs}) > 1,
        phase=None,
        component=last.function or None,
        location=Location(last.file, last.line, last.function) if last.line else None,
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=(
            Evidence(f"times that frame {frame} is compiled again", float(most), "count", ranks),
            *((Evidence("time that took", sum(seconds), "s", ranks),) if seconds else ()),
            *(Evidence(f"because {one.reason}", 1.0, "count") for one in mine[-3:]),
        ),
        next=(
            "mark what varies as dynamic (`torch._dynamo.mark_dynamic`, `torch.compile(dynamic=True)`)",
            "or pad it to a few sizes",
            "keep Python numbers that change each step out of compiled code",
        ),
    )


def _schedules(by_rank: dict[int, CompileDigest]) -> Iterator[Finding]:
    """Graphs of one id that call collectives in different order."""
    for id in dict.fromkeys(one.id for log in by_rank.values() for one in log.compilations if one.schedule):
        camps: dict[tuple[str, ...], list[int]] = {}
        for rank, log in by_rank.items():
            for one in log.compilations:
                if one.id == id and one.schedule:
                    camps.setdefault(one.schedule, []).append(rank)
        if len(camps) < 2:
            continue
        ordered = sorted(camps.items(), key=lambda camp: -len(camp[1]))
        even = len(ordered[0][1]) == len(ordered[1][1])
        odd = sorted(r for _, ranks in ordered[0 if even else 1 :] for r in ranks)
        yield Finding(
            cause="collective-order-mismatch",
            severity="warning",
            confidence=0.7,
            title=f"compiled graph {id} calls other collectives on {numbered(odd)} than on the other ranks",
            ranks=tuple(odd),
            all_ranks=even,
            phase="communication",
            component=f"graph {id}",
            location=None,
            first_step=None,
            last_step=None,
            cost=NOTHING,
            evidence=tuple(
                Evidence(f"{numbered(ranks)}: {', '.join(schedule[:8])}", float(len(schedule)), "count", tuple(ranks))
                for schedule, ranks in ordered[:4]
            ),
            next=("compile the same code with the same shapes on all ranks; look for branches on the rank",),
        )


def _differences(by_rank: dict[int, CompileDigest]) -> Iterator[str]:
    """Compile ids and cache outcomes that are not the same on all ranks."""
    for what, of in (("compile ids", _ids), ("cache outcomes", _caches)):
        camps: dict[tuple[str, ...], list[int]] = {}
        for rank, log in sorted(by_rank.items()):
            camps.setdefault(of(log), []).append(rank)
        if len(camps) > 1:
            told = "; ".join(f"{numbered(ranks)} {len(items)}" for items, ranks in camps.items())
            yield f"{what} diverge between ranks: {told}"


def _ids(log: CompileDigest) -> tuple[str, ...]:
    return tuple(one.id for one in log.compilations)


def _caches(log: CompileDigest) -> tuple[str, ...]:
    return tuple(f"{one.id} {name}" for one in log.compilations for name in one.caches)
