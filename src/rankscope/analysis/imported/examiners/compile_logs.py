"""Compile logs: what is compiled again and again, what differs between ranks, which graphs lack waits, what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rankscope.analysis.imported.compile.digest import CompileDigest, at, digest_of, located, ranks_of, who
from rankscope.analysis.imported.compile.diverging import divergences
from rankscope.analysis.imported.compile.recompiling import recompilations
from rankscope.analysis.imported.compile.waiting import missing_waits
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.imported.compile_log import CompileLog
from rankscope.records.imported.table import Table

MOST_NOTES = 16


class CompileLogs(Examiner):
    reads = CompileLog

    def digest(self, table: Table) -> CompileDigest:
        assert isinstance(table, CompileLog)
        return digest_of(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        logs = [d for d in digests if isinstance(d, CompileDigest)]
        by_rank = _newest(logs)
        all_ranks = tuple(sorted(by_rank))
        findings = (
            *_failures(logs, all_ranks),
            *missing_waits(logs, all_ranks),
            *recompilations(logs, all_ranks),
            *divergences(by_rank),
        )
        # Ranks 0 to N-1 without a gap are most likely all of them; of others nothing can be said.
        whole = len(all_ranks) > 1 and all_ranks[-1] == len(all_ranks) - 1
        return Answer(
            findings=findings,
            world_size=world_size or (len(all_ranks) if whole else None),
            examined=any(log.graphs for log in logs),
            not_examined=tuple(_not_examined(logs, by_rank)),
            notes=tuple(_notes(logs)),
        )


def _newest(logs: Sequence[CompileDigest]) -> dict[int, CompileDigest]:
    """Rank -> its newest log: a folder may hold those of several runs."""
    found: dict[int, CompileDigest] = {}
    for log in logs:
        if log.rank is not None and (log.rank not in found or (log.start_ns or 0) > (found[log.rank].start_ns or 0)):
            found[log.rank] = log
    return found


def _failures(logs: Sequence[CompileDigest], all_ranks: tuple[int, ...]) -> Iterator[Finding]:
    """Compilations that failed, were not suppressed, and were the last thing that a process compiled."""
    failed = [(log, *log.raised) for log in logs if log.raised is not None]
    if not failed:
        return
    own = [log for log, _, _ in failed]
    _, failure, place = failed[0]
    ranks = ranks_of(own)
    yield Finding(
        cause="rank-exception",
        severity="warning",
        confidence=0.6,
        title=f"compiling {at(place)} failed on {who(own)}, and nothing was compiled after it: {failure}"[:300],
        ranks=ranks,
        all_ranks=len(ranks) > 1 and ranks == all_ranks,
        phase=None,
        component="torch.compile",
        location=located(place),
        first_step=None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=tuple(
            Evidence(f"compilations on {log.who}, the last of which failed: {text}"[:300], len(log.graphs), "count",
                     ranks_of([log])) for log, text, _ in failed[:8]),
        next=(
            'run with backend="eager", then "aot_eager", to see which part of the compiler fails',
            "whether the program caught the error stands in its own log",
        ),
    )  # fmt: skip


def _not_examined(
    logs: Sequence[CompileDigest], by_rank: dict[int, CompileDigest]
) -> Iterator[tuple[str, str, str]]:
    for log in logs:
        if log.num_broken:
            yield ("torch.compile", "whole records", f"of {log.file}, damaged records were left out: {log.num_broken}, "
                   f"the first one in line {log.first_broken_line}")  # fmt: skip
        if log.num_dropped:
            why = f"{log.num_dropped} records of {log.file} are beyond what is kept"
            yield "torch.compile", "fewer compilations", why
    second: dict[int, int] = defaultdict(int)
    for log in logs:
        second[log.rank if log.rank is not None else -1] += 1
    again = sorted(rank for rank, n in second.items() if n > 1 and rank >= 0)
    if again:
        why = f"rank {again[0]}{' and others' if len(again) > 1 else ''} left several; the newest is compared"
        yield "differences between ranks", "one log a rank", why
    if len(by_rank) < 2:
        why = "there is no other rank to compare with"
        yield "differences between ranks", "compile logs of at least two ranks", why


def _notes(logs: Sequence[CompileDigest]) -> Iterator[str]:
    for log in sorted(logs, key=lambda one: (one.rank is None, one.rank or 0, one.file))[:MOST_NOTES]:
        again = sum(function.compilations - 1 for function in log.functions)
        seconds = f" in {log.seconds:.3g} s" if log.seconds is not None else ""
        parts = [f"compilations: {len(log.graphs)}{seconds}, again: {again}"]
        if log.hits or log.misses:
            parts.append(f"Inductor's cache: hits {log.hits}, misses {log.misses}")
        if log.breaks:
            worst = log.commonest_break
            reason = f": {worst.reason}" if worst is not None and worst.reason else ""
            where = f", most in {at(worst.place)}{reason}" if worst is not None and worst.place is not None else ""
            parts.append(f"graph breaks: {log.breaks}{where}"[:300])
        if log.suppressed:
            parts.append(f"uncompiled after a failure: {log.suppressed}")
        yield f"{log.who}: {'; '.join(parts)}"
    if len(logs) > MOST_NOTES:
        yield f"and {len(logs) - MOST_NOTES} compile logs more"
