"""Proof that the time stamps of different ranks can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.records.collective import CommunicationWait

SYNCHRONISING = (
    "barrier",
    "allreduce",
    "allgather",
    "_allgather_base",
    "reduce_scatter",
    "_reduce_scatter_base",
    "alltoall",
)
"""Operations that nobody leaves before all have entered (the source of a broadcast may)."""


@dataclass(frozen=True, slots=True)
class CheckedClock:
    """How the ranks came to one clock, and how far that can be wrong."""

    method: str
    max_error_us: float | None
    """None where several nodes are not tied together by anything."""


def check_clock(facts: Facts) -> CheckedClock:
    """The clock of the run, checked where ranks waited for one another.

    One node has one monotonic clock. Nobody leaves a blocking collective before the last one has entered it: that is
    checked on every matched wait, and by how much one contradicts it is the error.
    """
    hosts = {r.process.host for r in facts.ranks}
    if len(hosts) > 1:
        return CheckedClock("several nodes, not tied together", None)
    worst = 0
    checked = 0
    for position, own in enumerate(facts.timelines):
        segments = own.segments
        waits = segments[(segments["collective"] >= 0) & (segments["kind"] == CommunicationWait.code)]
        if not len(waits):
            continue
        at = waits["collective"].astype(np.int64)
        pid = facts.ranks[position].pid
        names = [facts.tables.name(pid, n) for n in own.collectives["name"][at].tolist()]
        waits, at = (x[np.array([n in SYNCHRONISING for n in names], bool)] for x in (waits, at))
        if not len(waits):
            continue
        last = facts.matches.last_enter[position][at]
        shared = facts.matches.last_rank[position][at] >= 0
        checked += int(shared.sum())
        if shared.any():
            worst = max(worst, int((last - waits["end"].astype(np.int64))[shared].max()))
    method = "one monotonic clock of the node"
    if checked:
        method += f", checked on {checked} waits"
    return CheckedClock(method, max(0, worst) / 1000)
