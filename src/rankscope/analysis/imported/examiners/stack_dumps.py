"""What stacks of all ranks at one moment say: the one that is elsewhere while the others wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.stacks_imported.standing import LOADER_WORKER, RANK, Standing, standings
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.records.imported.stack_dump import StackDump, StackFrame
from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class StackDigest(Digest):
    processes: tuple[Standing, ...]
    fatal: tuple[str, ...]


class StackDumps(Examiner):
    reads = StackDump

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, StackDump)
        return StackDigest(table.file, table.rank, tuple(standings(table)), table.fatal)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        dumps = [d for d in digests if isinstance(d, StackDigest)]
        everyone = [one for d in dumps for one in d.processes]
        ranks = _latest([one for one in everyone if one.what == RANK])
        found = [_died(d) for d in dumps if d.fatal and d.processes]
        if not found:
            found = [one for one in (_deadlock(everyone), _odd(ranks)) if one is not None][:1]
        missing = []
        if len(ranks) < 2 and not found:
            missing.append(("stuck-rank", "stacks of at least two ranks", "there is no other rank to compare with"))
        elif not found:
            why = f"no process of the {len(ranks)} stands out, and one moment does not say whether they move"
            missing.append(("stuck-rank", "a second dump, some seconds later", why))
        return Answer(findings=tuple(found), examined=bool(found), not_examined=tuple(missing))


def _latest(ranks: list[Standing]) -> list[Standing]:
    """Each process once: of several dumps of one, the last."""
    by_key: dict[object, Standing] = {}
    for number, one in enumerate(ranks):
        pid = (one.file, number) if one.pid is None else one.pid
        by_key[one.rank if one.rank is not None else ("process", pid)] = one
    return list(by_key.values())


def _odd(ranks: list[Standing]) -> Finding | None:
    """The few that are outside of communication while the others wait in it; else those in another call of it."""
    waiting = [one for one in ranks if one.waits]
    outside = [one for one in ranks if not one.waits]
    # Who has come to the end of the program keeps the others only where nobody else does.
    outside = [one for one in outside if not one.ended] or outside
    if waiting and outside and len(outside) <= len(waiting):
        return _stuck(outside, waiting)
    if outside or len(waiting) < 3:
        return None
    places = Counter(_key(one.place) for one in waiting)
    most, count = places.most_common(1)[0]
    odd = [one for one in waiting if _key(one.place) != most]
    if not odd or len(odd) * 2 >= len(waiting) or count < 2:
        return None
    rest = [one for one in waiting if one not in odd]
    return _finding(
        "missing-collective", 0.55, odd, rest,
        f"{_who(odd)} in another call of communication than the others: {_at(odd[0].place)}, they in "
        f"{_at(rest[0].place)}",
    )  # fmt: skip


def _stuck(outside: list[Standing], waiting: list[Standing]) -> Finding:
    one = outside[0]
    where = " (its loader gives no batch)" if one.in_loader else " (a lock)" if one.in_lock else ""
    return _finding(
        "stuck-rank", 0.75, outside, waiting,
        f"{_who(outside)} in {_at(one.place)}{where} while {len(waiting)} others wait for it in {_at(waiting[0].leaf)}",
    )  # fmt: skip


def _deadlock(everyone: list[Standing]) -> Finding | None:
    """Workers that stand at a lock in the dataset's code while their ranks wait for a batch."""
    stuck = [one for one in everyone if one.what == LOADER_WORKER and one.in_lock and one.user is not None]
    hungry = [one for one in everyone if one.what == RANK and one.in_loader]
    if not stuck or not hungry:
        return None
    return _finding("loader-deadlock", 0.75, hungry, stuck,
                    f"{_who(hungry)} waiting for a batch: {len(stuck)} loader workers stand at a lock in "
                    f"{_at(stuck[0].place)}", place=stuck[0].place)  # fmt: skip


def _died(dump: StackDigest) -> Finding:
    one = dump.processes[0]
    who = one.who
    sure = not dump.fatal[0].startswith(("Aborted", "none of"))
    return _finding("dead-rank", 0.85 if sure else 0.5, [one], [], f"{who} died in {_at(one.place)}: {dump.fatal[0]}")


def _finding(
    cause: str, confidence: float, odd: list[Standing], others: list[Standing], title: str, *,
    place: StackFrame | None = None,
) -> Finding:  # fmt: skip
    at = place or odd[0].place
    ranks = tuple(sorted({one.rank for one in odd if one.rank is not None}))
    return Finding(
        cause=cause,
        severity="critical",
        confidence=confidence,
        title=title[:300],
        ranks=ranks,
        all_ranks=False,
        phase=None,
        component=at.function,
        location=Location(at.file, at.line, at.function),
        first_step=None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            Evidence("processes that stand there", len(odd), "count", ranks),
            *(Evidence(f"{one.who}: {_at(one.leaf)}, called from {_at(one.place)}", one.place.line, "line",
                       (one.rank,) if one.rank is not None else ()) for one in odd[:4]),
            *((Evidence(f"others in {_at(others[0].leaf)}, called from {_at(others[0].place)}", len(others), "count",
                        tuple(sorted({o.rank for o in others if o.rank is not None}))),) if others else ()),
        ),
        next=(
            "look at this line: what does it wait for, and does every rank come past it?",
            "take a second dump some seconds later: a rank that stands at the same line is stuck, one that moves is "
            "slow",
        ),
    )  # fmt: skip


def _who(odd: list[Standing]) -> str:
    ranks = sorted({one.rank for one in odd if one.rank is not None})
    if ranks:
        return f"{numbered(ranks)} {'is' if len(ranks) == 1 else 'are'}"
    return f"{odd[0].who} is" if len(odd) == 1 else f"{odd[0].who} and {len(odd) - 1} more are"


def _key(frame: StackFrame) -> tuple[str, int, str]:
    return frame.file, frame.line, frame.function


def _at(frame: StackFrame) -> str:
    return f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
