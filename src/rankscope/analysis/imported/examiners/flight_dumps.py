"""Flight Recorder dumps of a job that stopped: which ranks keep the others, and in which operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.flight.waiting import Mismatch, Waiting, mismatches
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.records.imported.flight_dump import FlightDump
from rankscope.records.imported.table import Table

FEW = 0.25
"""Entries of a rank beside those of its peers, in the median, that count as nearly none."""
NOTHING = Cost(None, None, None)


@dataclass(frozen=True, slots=True)
class FlightDigest(Digest):
    """A dump is small: all of it is kept."""

    dump: FlightDump


class FlightDumps(Examiner):
    """Matches the operations of all ranks by group and number, and follows who waits for whom to ranks that wait for
    nobody."""

    reads = FlightDump

    def digest(self, table: Table) -> FlightDigest:
        assert isinstance(table, FlightDump)
        return FlightDigest(table.file, table.rank, table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        dumps: dict[int, FlightDump] = {}
        unused: dict[str, str] = {}
        for digest in digests:
            assert isinstance(digest, FlightDigest)
            if digest.rank is None:
                unused[digest.file] = "neither its name nor its contents say of which rank it is"
            elif digest.rank in dumps:
                unused[digest.file] = f"is a second dump of rank {digest.rank}; {dumps[digest.rank].file} is used"
            else:
                dumps[digest.rank] = digest.dump
        waiting = Waiting(dumps)
        size = max((r + 1 for r in waiting.ranks), default=0)
        all_ranks = tuple(range(max(size, world_size or 0)))
        missing = tuple(rank for rank in all_ranks if rank not in dumps)
        findings = tuple(_findings(waiting, missing))
        not_examined = []
        if missing:
            why = f"there is no dump of {numbered(missing)}, of {len(all_ranks)} ranks"
            not_examined.append(("missing ranks", "the dumps of all ranks", why))
        if not waiting.standing and not findings:
            not_examined.append(("hang", "an unfinished operation", "every operation in the dumps is finished"))
        if not findings:
            not_examined += _all_here(waiting)
        return Answer(
            findings=findings,
            world_size=len(all_ranks) or None,
            examined=bool(dumps) and (bool(waiting.standing) or not missing),
            not_examined=tuple(not_examined),
            unused=unused,
        )


def _findings(waiting: Waiting, missing: tuple[int, ...]) -> Iterator[Finding]:
    orders, shapes = mismatches(waiting)
    for cause, found in (("collective-order-mismatch", orders), ("collective-shape-mismatch", shapes)):
        if found:
            yield _mismatch(cause, found[0], waiting)
    if orders or shapes:
        return
    culprits = waiting.culprits()
    if not culprits:
        return
    dead = tuple(rank for rank in culprits if rank in missing)
    stuck = tuple(rank for rank in culprits if rank not in missing and _is_stuck(waiting, rank))
    absent = tuple(rank for rank in culprits if rank not in dead and rank not in stuck)
    for cause, ranks, confidence in (("stuck-rank", stuck, 0.85), ("missing-collective", absent, 0.75),
                                     ("dead-rank", dead, 0.6)):  # fmt: skip
        if ranks:
            yield _culprits(cause, ranks, confidence, waiting)


def _all_here(waiting: Waiting) -> Iterator[tuple[str, str, str]]:
    """Operations that all their ranks have come to, and that others wait for."""
    told = set()
    for rank, one in sorted(waiting.standing.items()):
        key = one.entry.group, one.entry.sequence
        if key not in told and waiting.all_here(rank) and waiting.waiters(rank):
            told.add(key)
            what = f"{one.entry.operation} number {one.entry.sequence} of {waiting.description(one.entry.group)}"
            why = f"{numbered(one.members)} have all come to {what}, which does not end"
            yield "hang", "stacks or logs", f"{why}: the network or a device; the dumps cannot tell"


def _is_stuck(waiting: Waiting, rank: int) -> bool:
    """Whether it stands in something that its peers have done, or its dump is nearly empty: the thread that would have
    filled it could not."""
    if rank in waiting.standing:
        return True
    own = len(waiting.dumps[rank].entries)
    others = sorted(len(waiting.dumps[other].entries) for other in waiting.waiters(rank) if other in waiting.dumps)
    return bool(others) and own <= FEW * others[len(others) // 2]


_WORDS = {
    "stuck-rank": ("makes no progress", "make no progress"),
    "missing-collective": ("does not come", "do not come"),
    "dead-rank": ("left no dump", "left no dump"),
}
"""Of one rank, and of several."""


def _culprits(cause: str, ranks: tuple[int, ...], confidence: float, waiting: Waiting) -> Finding:
    waiters = tuple(sorted({one for rank in ranks for one in waiting.waiters(rank)} - set(ranks)))
    # Most of them wait in one collective, the others for a partner.
    places = [waiting.standing[rank] for rank in waiters]
    alike = Counter((one.entry.group, one.entry.sequence) for one in places if not one.entry.point_to_point)
    place = max(places, key=lambda one: alike[one.entry.group, one.entry.sequence])
    group = waiting.description(place.entry.group)
    what = f"{place.entry.operation} number {place.entry.sequence} of {group}"
    words = _WORDS[cause][len(ranks) > 1]
    here = tuple(one.rank for one in places if one.entry.sequence == place.entry.sequence
                 and one.entry.group == place.entry.group)  # fmt: skip
    evidence = [Evidence(f"ranks that wait in {what}", float(len(here)), "count", here)]
    for rank in ranks[:4]:
        dump = waiting.dumps.get(rank)
        if dump is None:
            continue
        evidence.append(Evidence("entries in the dump of this rank", float(len(dump.entries)), "count", (rank,)))
        mine = waiting.standing.get(rank)
        if mine is not None:
            where = waiting.description(mine.entry.group)
            text = f"its first unfinished operation, {mine.entry.operation} of {where}, which its peers have done"
            evidence.append(Evidence(text, float(mine.entry.sequence), "number", (rank,)))
    return Finding(
        cause=cause,
        severity="critical",
        confidence=confidence,
        title=f"{numbered(ranks)} {words}: {numbered(here)} {'wait' if len(here) > 1 else 'waits'} in {what}",
        ranks=ranks,
        all_ranks=False,
        phase="communication",
        component=what,
        location=_location(place.entry.site),
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=tuple(evidence),
        next=(
            f"look at what {numbered(ranks)} did then: its log, its stacks (`py-spy dump`), its device (`dmesg`, Xid)",
            "ranks that are not named here only wait",
        ),
    )


def _mismatch(cause: str, found: Mismatch, waiting: Waiting) -> Finding:
    group = waiting.description(found.group)
    largest = len(found.camps[0][1])
    minority = tuple(sorted(r for _, ranks in found.camps[1:] for r in ranks))
    even = len(found.camps[1][1]) == largest
    ranks = tuple(sorted((*found.camps[0][1], *minority))) if even else minority
    told = "; ".join(f"{numbered(ranks)} {what}" for what, ranks in found.camps[:3])
    entry = next(e for e in waiting.dumps[ranks[0]].entries
                 if e.group == found.group and e.sequence == found.sequence and not e.point_to_point)  # fmt: skip
    differ = "call different operations" if cause == "collective-order-mismatch" else "give different sizes or types"
    return Finding(
        cause=cause,
        severity="critical",
        confidence=0.9,
        title=f"at number {found.sequence} of {group} ranks {differ}: {told}",
        ranks=ranks,
        all_ranks=even and set(ranks) == set(waiting.members(found.group)),
        phase="communication",
        component=f"{group}, number {found.sequence}",
        location=_location(entry.site),
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=tuple(Evidence(what, float(len(camp)), "ranks", camp) for what, camp in found.camps[:6]),
        next=("make every rank of the group call the same operations in the same order, with the same sizes",),
    )


def _location(site: str) -> Location | None:
    found = re.fullmatch(r"(.+):(\d+):(.*)", site)
    return Location(found[1], int(found[2]), found[3]) if found else None
