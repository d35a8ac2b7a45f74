"""From judged events to findings: what began it first, each fault once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rankscope.analysis.imported.logs.digest import NEW_YEARS, Job
from rankscope.analysis.imported.logs.judged import Judged
from rankscope.analysis.imported.logs.timeouts import Timeout
from rankscope.analysis.imported.logs.verdicts import BEGINS, FOLLOWS, UNSURE, Verdict
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding, Location, Severity
from rankscope.records.imported.log_lines import EXCEPTION, EXIT, TOLD_TO_END

MOST: Final = 6
"""Findings of one job's logs; more are a cascade that nobody reads."""
MOST_EVIDENCE: Final = 5
_INTERRUPTED: Final = re.compile(r"got signal: 2\b|SIGINT|KeyboardInterrupt")


@dataclass(slots=True)
class _Fault:
    """Events with one cause in one place."""

    events: list[Judged]
    silent: tuple[int, ...] = ()
    """Ranks that are at fault because they alone say nothing."""

    @property
    def first(self) -> Judged:
        return self.events[0]

    @property
    def ranks(self) -> tuple[int, ...]:
        """At fault, as far as these lines say it: who lost its peers only suffers."""
        if self.silent:
            return self.silent
        pairs = {j.verdict.differ for j in self.events if j.verdict.differ}
        if pairs:  # who differs from all others stands in every pair
            odd = set.intersection(*map(set, pairs))
            return tuple(sorted(odd if len(pairs) > 1 and len(odd) == 1 else set().union(*pairs)))
        own = [j for j in self.events if j.verdict.names_rank]
        return tuple(sorted({j.seen.rank for j in own if j.seen.rank is not None}))


def findings(job: Job, judged: Sequence[Judged], late: Timeout | None) -> list[Finding]:
    """The root first; what other ranks report in its wake stands as evidence, not as findings."""
    comparable = _comparable(job)

    def when(j: Judged) -> tuple[int, int, int]:
        return (j.seen.event.time_ns or 0) if comparable else 0, *j.seen.order

    begins = sorted((j for j in judged if j.verdict.role == BEGINS), key=when)
    unsure = sorted((j for j in judged if j.verdict.role == UNSURE), key=when)
    follows = sorted((j for j in judged if j.verdict.role == FOLLOWS), key=when)
    made: list[Finding] = []
    if late is not None and (not begins or (comparable and _after(begins[0], late))):
        made.append(_of_timeout(job, late))
    chosen = begins or ([] if made else unsure)
    if begins and all(j.kernel for j in begins):  # what a driver says stands for itself
        chosen = sorted([*begins, *(j for j in unsure if j.kernel)], key=when)
    elif not begins and any(j.kernel for j in chosen):  # a program's exit says least
        chosen = [j for j in chosen if j.kernel]
    earlier: list[Judged] = []
    for fault in _faults(chosen) if chosen or made else _last_resort(job, follows):
        wake = bool(made) and (not earlier or any(_same_incident(one, fault.first) for one in earlier))
        made.append(_finding(job, fault, follows, earlier=wake, late=late))
        earlier.append(fault.first)
        if len(made) >= MOST:
            break
    return made


def _same_incident(first: Judged, later: Judged) -> bool:
    """Whether no training lies between them: after steps that were made again, an error is one of its own."""
    a, b = first.seen, later.seen
    steps = a.event.step_before, b.event.step_before
    return a.file != b.file or steps[0] == steps[1]


def _comparable(job: Job) -> bool:
    """Whether all events have a time of the same kind."""
    times = [one.event.time_ns for one in job.seen]
    return None not in times and len({t > NEW_YEARS for t in times if t is not None}) == 1


def _after(first: Judged, late: Timeout) -> bool:
    """Whether the first error of all came when a watchdog had already spoken."""
    spoke = [s.event.time_ns for s in late.seen if s.event.time_ns is not None]
    own = first.seen.event.time_ns
    return bool(spoke) and own is not None and own > min(spoke)


def _last_resort(job: Job, follows: Sequence[Judged]) -> list[_Fault]:
    """Only consequences are seen: the first with most to say, and the few ranks that have lost nobody."""
    errors = [j for j in follows if j.seen.event.kind == EXCEPTION]
    exits = [j for j in follows if j.seen.event.kind == EXIT]
    chosen = (errors or exits or list(follows))[:1]
    if not chosen:
        return []
    first = chosen[0]
    told = [j for j in follows if j.seen.event.kind == TOLD_TO_END or j.seen.event.name.endswith("SignalException")]
    if any(_INTERRUPTED.search(j.seen.event.text) for j in told):
        return []  # by hand
    if len(told) == len(follows):
        return [_Fault([_told_to_end(told[0])])]
    verdict = replace(first.verdict, names_rank=False)
    suffer = {j.seen.rank for j in follows if j.seen.rank is not None}
    size = job.world_size or 0
    silent = tuple(sorted(set(range(size)) - suffer)) if size <= 1 << 16 else ()
    if first.seen.event.kind == EXIT or not silent or len(silent) >= len(suffer):
        return [_Fault([Judged(first.seen, verdict)])]
    what = f"reports nothing, while {numbered(tuple(sorted(suffer)))} lost their peers"
    verdict = replace(verdict, cause="dead-rank", confidence=0.45, what=what)
    return [_Fault([Judged(first.seen, verdict)], silent)]


def _told_to_end(one: Judged) -> Judged:
    """Somebody ended the job from outside, and no line says why."""
    verdict = Verdict("dead-rank", UNSURE, 0.3, f"the job was told to end: {one.seen.event.text[:110]}", (
        "ask the scheduler why (`sacct`, `kubectl describe`), or whoever ended it",),
        severity="warning", names_rank=False)  # fmt: skip
    return replace(one, verdict=verdict)


def _faults(chosen: Sequence[Judged]) -> list[_Fault]:
    groups: dict[tuple[object, ...], _Fault] = defaultdict(lambda: _Fault([]))
    for j in chosen:
        event, cause = j.seen.event, j.verdict.cause
        key: tuple[object, ...] = (cause,)
        if cause == "rank-exception":
            key = (cause, event.name, event.place)
        elif cause == "hardware-error":
            key = (cause, j.verdict.component)
        elif cause == "dead-rank":
            key = (cause, j.verdict.what.split(" (")[0])
        groups[key].events.append(j)
    return list(groups.values())


def _finding(job: Job, fault: _Fault, follows: Sequence[Judged], *, earlier: bool, late: Timeout | None) -> Finding:
    best = max(fault.events, key=lambda j: (j.verdict.severity == "critical", j.verdict.component is not None,

                                            j.verdict.confidence, len(j.verdict.figures)))  # fmt: skip
    verdict, event = best.verdict, best.seen.event
    ranks = fault.ranks
    places = [] if fault.silent else [j.seen.event.place for j in fault.events if j.seen.event.place is not None]
    place = next(iter(places), None)
    severity: Severity = "critical" if verdict.severity == "critical" else "warning"
    consequence = earlier and not best.kernel
    if consequence:
        severity = "warning"
    where = f" in {place.function} ({place.file.rsplit('/', 1)[-1]}:{place.line})" if place is not None else ""
    host = f" on {event.host}" if event.host and not ranks and "driver reports" not in verdict.what else ""
    what = " ".join(verdict.what.split())
    step = f" after step {event.step_before}" if event.step_before is not None else ""
    seen = [
        Evidence(
            f"{j.seen.short}: {j.seen.event.text[:160]}", 1, "count", (j.seen.rank,) if j.seen.rank is not None else ())
        for j in fault.events[: MOST_EVIDENCE - 1]
    ]
    peers = sorted({j.seen.rank for j in follows if j.seen.rank is not None} - set(ranks))
    if late is not None:
        peers = sorted({*peers, *late.waiting} - set(ranks))
    if peers:
        seen.append(Evidence("ranks whose errors only follow", len(peers), "count", tuple(peers)))
    return Finding(
        cause=verdict.cause,
        severity=severity,
        confidence=min(verdict.confidence, 0.5) if consequence else verdict.confidence,
        title=f"{_who(ranks, fault)}{host}: {what}{where}{step}".removeprefix(": ")[:300],
        ranks=ranks,
        all_ranks=job.world_size is not None and len(ranks) == job.world_size > 0,
        phase=None,
        component=verdict.component,
        location=Location(place.file, place.line, place.function) if place is not None else None,
        first_step=event.step_before,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            Evidence("lines of the log that say so", len(fault.events), "count", ranks),
            *(Evidence(*figure) for figure in verdict.figures),
            *seen,
        ),
        next=verdict.next,
    )


def _who(ranks: tuple[int, ...], fault: _Fault) -> str:
    if ranks:
        return numbered(ranks)
    if fault.first.verdict.what.startswith(("the scheduler", "the job")):
        return ""
    if fault.first.kernel or fault.first.seen.event.kind == EXIT:
        return "" if fault.first.kernel else "a process"
    return "a rank"


def _of_timeout(job: Job, late: Timeout) -> Finding:
    verdict = late.verdict
    who = f"{numbered(late.ranks)} " if late.ranks else ""
    longest = max((s.event.timeout_ms for s in late.seen if s.event.timeout_ms is not None), default=None)
    figures = [Evidence("timeout of the collective", longest, "ms")] if longest is not None else []
    return Finding(
        cause=verdict.cause,
        severity="critical",
        confidence=verdict.confidence,
        title=f"{who}{verdict.what}"[:300],
        ranks=late.ranks,
        all_ranks=job.world_size is not None and len(late.ranks) == job.world_size,
        phase="communication",
        component=next((s.event.name for s in late.seen if s.event.name), None),
        location=None,
        first_step=next((s.event.step_before for s in late.seen), None),
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            Evidence("ranks whose watchdog timed out", len(late.waiting), "count", late.waiting),
            *figures,
            *(
                Evidence(f"{s.short}: {s.event.text[:160]}", s.event.number, "sequence number",
                         (s.rank,) if s.rank is not None else ())
                for s in late.seen[: MOST_EVIDENCE - 1]
            ),
        ),
        next=verdict.next,
    )  # fmt: skip
