"""Who kept the others waiting, from what each rank's watchdog says of a collective that timed out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rankscope.analysis.imported.logs.digest import Job, Seen
from rankscope.analysis.imported.logs.judged import survived
from rankscope.analysis.imported.logs.verdicts import UNSURE, Verdict
from rankscope.analysis.wording import numbered
from rankscope.records.imported.log_lines import PROGRESS, WATCHDOG

DEFAULT_GROUP = "0"
EVEN = frozenset(
    ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
)
"""Operations in which all ranks give as many elements."""
ASK = "run it with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and give the Flight Recorder dumps to `rankscope diagnose`"


@dataclass(slots=True)
class _Rank:
    """What one rank says in one group."""

    waits: bool = False
    """A collective of it timed out. Which one, torch before 2.0 does not say."""
    sequence: int | None = None
    operation: str = ""
    elements: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    seen: list[Seen] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeout:
    """A timeout, and the ranks that the words point at."""

    verdict: Verdict
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    seen: tuple[Seen, ...]
    first_ns: int | None
    """When the first rank began to wait."""


def timeout(job: Job) -> Timeout | None:
    """The first timeout of the job, of all groups; None where there is none."""
    groups: dict[str, dict[int | None, _Rank]] = defaultdict(dict)
    # With PyTorch's newer lines a rank says its group; older ones have only one.
    for one in job.seen:
        event = one.event
        if event.kind not in (WATCHDOG, PROGRESS) or survived(event):
            continue
        rank = groups[event.group or DEFAULT_GROUP].setdefault(one.rank, _Rank())
        rank.seen.append(one)
        rank.waits = rank.waits or event.kind == WATCHDOG or event.number is not None
        if event.kind == WATCHDOG and rank.sequence is None:
            rank.sequence, rank.operation, rank.elements = event.number, event.name, event.elements
        if event.kind == PROGRESS:
            rank.enqueued = event.enqueued if rank.enqueued is None else rank.enqueued
            rank.completed = event.completed if rank.completed is None else rank.completed
            rank.sequence = event.number if rank.sequence is None else rank.sequence
    stopped = {g: r for g, r in groups.items() if any(one.waits for one in r.values())}
    if not stopped:
        return None
    group = min(stopped, key=lambda g: min(s.event.time_ns or 0 for r in stopped[g].values() for s in r.seen))
    return _judged(job, stopped[group], group)


def _judged(job: Job, ranks: dict[int | None, _Rank], group: str) -> Timeout:
    waiting = tuple(sorted(r for r, one in ranks.items() if r is not None and one.waits))
    seen = tuple(s for one in ranks.values() for s in one.seen)
    starts = [
        s.event.time_ns - int((s.event.timeout_ms or 0) * 1e6)
        for s in seen
        if s.event.time_ns is not None and s.event.kind == WATCHDOG
    ]
    since = min(starts, default=None)
    told = {r: one for r, one in ranks.items() if r is not None}
    cause, odd, what, confidence = _suspect(job, told, group, since)
    who = numbered(tuple(w for w in waiting if w not in odd) or waiting) if waiting else "the ranks"
    some = next((one for one in ranks.values() if one.waits), _Rank())
    call = some.operation or "a collective"
    call += f" number {some.sequence}" if some.sequence is not None else ""
    verdict = Verdict(cause, UNSURE, confidence, f"{what}; {who} timed out in {call}", (
        "look at what this rank did then: its own log, `py-spy dump` of its process", ASK))  # fmt: skip
    return Timeout(verdict, odd, waiting, seen, since)


def _suspect(
    job: Job, ranks: dict[int, _Rank], group: str, since: int | None
) -> tuple[str, tuple[int, ...], str, float]:
    """(cause, ranks, what they did, confidence)."""
    sequences = {r: one.sequence for r, one in ranks.items() if one.sequence is not None}
    calls = {r: (one.operation, one.elements) for r, one in ranks.items() if one.waits and one.operation}
    at = Counter(sequences.values()).most_common(1)[0][0] if sequences else None
    # Without a number two ranks may time out in different collectives.
    here = {r: call for r, call in calls.items() if at is not None and sequences.get(r) == at}
    if len({call[0] for call in here.values()}) > 1:
        odd = _minority({r: call[0] for r, call in here.items()})
        return "collective-order-mismatch", odd, f"called {_each(here, odd)} where the others called another one", 0.9
    if len({call[1] for call in here.values()}) > 1 and {call[0] for call in here.values()} <= EVEN:
        odd = _minority({r: call[1] for r, call in here.items()})
        what = f"called {_each(here, odd)} elements where the others had other sizes"
        return "collective-shape-mismatch", odd, what, 0.85
    # Ranks count from 0: one that is left out between others exists.
    size = job.world_size if job.world_size is not None else max(job.known, default=-1) + 1
    world = range(size) if size <= 1 << 16 else sorted(job.known)
    # A rank of which only the others' signal is told, and with nothing pending, is in no collective either.
    idle = {r for r, one in ranks.items() if not one.waits and one.enqueued == one.completed}
    silent = tuple(r for r in world if r not in ranks or r in idle) if group == DEFAULT_GROUP else tuple(sorted(idle))
    if silent and len(silent) * 2 <= len(world):
        return _silent(job, silent, since)
    enqueued = {r: one.enqueued for r, one in ranks.items() if one.enqueued is not None}
    if len(set(enqueued.values())) > 1:
        most = max(enqueued.values())
        behind = tuple(sorted(r for r, n in enqueued.items() if n < most))
        if len(behind) * 2 > len(enqueued):
            ahead = tuple(sorted(set(enqueued) - set(behind)))
            return "missing-collective", ahead, f"entered collective {most}, which the others did not", 0.7
        n = enqueued[behind[0]]
        return "missing-collective", behind, f"had entered only {n} collectives while others had entered {most}", 0.8
    if len(set(sequences.values())) > 1:
        least = min(sequences.values())
        behind = tuple(sorted(r for r, n in sequences.items() if n == least))
        if len(behind) * 2 <= len(sequences):
            what = f"was at collective {least} while others were at {max(sequences.values())}"
            return "missing-collective", behind, what, 0.75
    if len(ranks) > 1:
        return "network-error", (), "every rank that speaks entered the same collective, and it did not end", 0.35
    return "missing-collective", (), "a rank did not come; these lines do not say which", 0.3


def _silent(job: Job, silent: tuple[int, ...], since: int | None) -> tuple[str, tuple[int, ...], str, float]:
    """Ranks whose watchdog says nothing wait for nobody: they were not in a collective."""
    spoke = [job.spoke[r] for r in silent if r in job.spoke]
    busy = [one for one in spoke if since is not None and one.last_time_ns is not None and one.last_time_ns > since]
    if busy:
        return "slow-rank-timeout", silent, f"was busy in code of its own ({busy[0].last_text.strip()[:60]!r})", 0.7
    return "stuck-rank", silent, "was in no collective when the others waited, and says nothing", 0.6


def _minority(values: dict[int, object]) -> tuple[int, ...]:
    """Ranks whose value is not the most frequent one; all where it is even."""
    counted = Counter(values.values()).most_common()
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return tuple(sorted(values))
    return tuple(sorted(r for r, value in values.items() if value != counted[0][0]))


def _each(calls: dict[int, tuple[str, int | None]], odd: Sequence[int]) -> str:
    operation, elements = calls[odd[0]]
    return f"{operation} of {elements:,}" if elements is not None else operation
