"""Proof that the time stamps of different ranks can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clock_bounds import Ints, Matched, clock_bounds
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
BLOCKING_ON_DEVICES = ("barrier",)
"""Those of which the same holds with NCCL: waiting for any other one only tells the device to wait."""


@dataclass(frozen=True, slots=True)
class CheckedClock:
    """How the ranks came to one clock, and how far that can be wrong."""

    method: str
    max_error_us: float | None
    """None where it is not known how far the clocks of several nodes are apart."""


def check_clock(facts: Facts) -> CheckedClock:
    """The clock of the run, checked where ranks waited for one another.

    One node has one monotonic clock; the error is by how much a wait contradicts it: nobody leaves a blocking
    collective before the last one has entered it. Time stamps of several nodes are taken as they are; the error is how
    far their clocks may be apart, as far as these waits prove it.
    """
    waits = _waits(facts)
    hosts = sorted({rank.process.host for rank in facts.ranks})
    if len(hosts) == 1:
        method = "one monotonic clock of the node"
        if not len(waits.call):
            return CheckedClock(method, 0.0)
        return CheckedClock(f"{method}, checked on {len(waits.call)} waits", _earliest_leave_us(waits))
    node = np.array([hosts.index(rank.process.host) for rank in facts.ranks])
    bounds = clock_bounds(Matched(waits.call, node[waits.position], waits.enter_ns, waits.leave_ns))
    if len(bounds.clocks) < len(hosts):
        return CheckedClock(f"{len(hosts)} nodes, not tied together", None)
    method = f"the clocks of {len(hosts)} nodes as they are, compared on {len(waits.call)} waits"
    if not isfinite(bounds.most_apart_us):
        return CheckedClock(method, None)
    within = f"which tell their difference to within {bounds.max_error_us:.0f} µs"
    return CheckedClock(f"{method}, {within}", bounds.most_apart_us)


@dataclass(frozen=True, slots=True)
class _Waits:
    """Blocking waits for collectives that other ranks took part in, one entry a rank and collective."""

    call: Ints
    """The same number for the same collective on every rank."""
    position: Ints
    """Of the rank."""
    enter_ns: Ints
    leave_ns: Ints
    last_enter_ns: Ints
    """When the last of all ranks entered."""


def _waits(facts: Facts) -> _Waits:
    parts = [_waits_of(facts, position) for position in range(facts.size)]
    return _Waits(*(np.concatenate([part[i] for part in parts]) for i in range(5)))


def _waits_of(facts: Facts, position: int) -> tuple[Ints, ...]:
    """The columns of `_Waits` for one rank."""
    own = facts.timelines[position]
    segments = own.segments
    segments = segments[(segments["collective"] >= 0) & (segments["kind"] == CommunicationWait.code)]
    # A pause cuts a wait in two: it is left at the end of its last piece.
    leave = np.full(len(own.collectives), np.iinfo(np.int64).min)
    np.maximum.at(leave, segments["collective"].astype(np.int64), segments["end"].astype(np.int64))
    shared = facts.matches.last_rank[position] >= 0
    at = np.flatnonzero((leave > np.iinfo(np.int64).min) & shared & _synchronising(facts, position))
    enter = own.collectives["time_ns"].astype(np.int64)
    return (
        facts.matches.ids[position][at],
        np.full(len(at), position),
        enter[at],
        leave[at],
        facts.matches.last_enter[position][at],
    )


def _synchronising(facts: Facts, position: int) -> NDArray[np.bool_]:
    """Which of a rank's collectives nobody leaves before all have entered."""
    process = facts.ranks[position].process
    wanted = BLOCKING_ON_DEVICES if "nccl" in process.backend else SYNCHRONISING
    names = facts.timelines[position].collectives["name"]
    ids = [id for id in np.unique(names).tolist() if facts.tables.name(process.pid, id) in wanted]
    return np.isin(names, ids)


def _earliest_leave_us(waits: _Waits) -> float:
    """By how much a rank was seen to leave before the last one had entered; 0 where none was."""
    return max(0.0, float((waits.last_enter_ns - waits.leave_ns).max()) / 1_000)
