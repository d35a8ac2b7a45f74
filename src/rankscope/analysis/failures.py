"""The first thing that went wrong in a run that failed: what all detectors of failures share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.analysis.ends import End, ends
from rankscope.analysis.facts import Facts
from rankscope.analysis.worker_deaths import worker_death

SAME_TIME_NS = 300_000_000
"""Ranks that fail within this time of each other fail together: the first one's end needs so long to reach a peer that
waits for it in a collective, and a peer's own fault does not care."""
HARDWARE = re.compile(
    r"uncorrectable|\becc error|\bxid\b|fallen off the bus|unspecified launch failure|device (is )?unavailable|"
    r"cuda driver|nvml|no cuda-capable device|device lost|hardware stack error|hip error: unspecified",
    re.IGNORECASE,
)
"""In the text of an error: the device or its driver, not the program."""
NETWORK = re.compile(
    r"no route to host|network is (unreachable|down)|host is down|connection timed out|ncclremoteerror|net/ib|ibv_|"
    r"transport retry counter|vendor err|etimedout|ehostunreach|enetunreach|connection (closed|reset)",
    re.IGNORECASE,
)
"""In the text of an error: a connection between ranks."""
UNUSED = re.compile(r"expected to have finished reduction|expected to mark a variable ready only once", re.IGNORECASE)
"""DDP's reducer, of parameters without a gradient."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The ends of a failed run that are faults of their own, the first one first, and those that follow from them."""

    roots: tuple[End, ...]
    followers: tuple[End, ...]


def failure(facts: Facts) -> Failure | None:
    """What ended the run; None where no rank failed."""
    return facts.once(_failure)


def _failure(facts: Facts) -> Failure | None:
    failed = [end for end in ends(facts) if end.failed]
    own = [end for end in failed if not end.follows or worker_death(facts, end) is not None]
    if not own:
        return None
    first = own[0]
    roots = [end for end in own if _together(end, first)]
    return Failure(tuple(roots), tuple(end for end in failed if end not in roots))


def _together(end: End, first: End) -> bool:
    """Whether an end is the same fault as the first one, on another rank at the same time."""
    if end is first:
        return True
    same = end.place == first.place and end.exception.partition(":")[0] == first.exception.partition(":")[0]
    return bool(first.exception) and same and end.time_ns - first.time_ns < SAME_TIME_NS
