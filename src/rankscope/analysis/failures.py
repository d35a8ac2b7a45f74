"""The first thing that went wrong in a run that failed: what all detectors of failures share."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from rankscope.analysis.ends import STOPPED, End, ends
from rankscope.analysis.facts import Facts
from rankscope.analysis.standing import stalled, standing
from rankscope.analysis.worker_deaths import worker_death

SAME_TIME_NS = 300_000_000
"""Ranks that fail within this time of each other fail together: the first one's end needs so long to reach a peer that
waits for it in a collective, and a peer's own fault does not care."""
GRACE_NS = 1_000_000_000
"""Who tells a rank to end gives it more time than this before SIGKILL (torchrun 30 s, Kubernetes 30 s)."""
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
    killed = _killed_as_it_hung(facts, failed)
    follows = [*killed, *gave_up(facts)]
    own = [end for end in failed if worker_death(facts, end) is not None or not (end.follows or end in follows)]
    if not own:
        return None
    first = own[0]
    roots = [end for end in own if _together(end, first)]
    return Failure(tuple(roots), tuple(end for end in failed if end not in roots))


def _killed_as_it_hung(facts: Facts, failed: list[End]) -> list[End]:
    """Ends by SIGKILL that a launcher or a user brought about: of ranks that had been told to end and did not, and of
    all ranks where all stood still for long, one of them in wait for its peers."""
    killed = [end for end in failed if end.signal == signal.SIGKILL and not end.exception]
    hung = len(killed) == facts.size == len(stalled(facts)) and any(standing(facts, e.position).waits for e in killed)
    told = min((end.time_ns for end in failed if _told_to_end(end)), default=None)
    return [end for end in killed if hung or (told is not None and end.time_ns - told > GRACE_NS)]


def gave_up(facts: Facts) -> list[End]:
    """Ends by SIGABRT of ranks that had waited for their peers for long: a watchdog that aborts its own process (NCCL's
    does) names the one that waits, never the one that is waited for."""
    aborted = [end for end in ends(facts) if end.signal == signal.SIGABRT and not end.exception]
    long = stalled(facts) if aborted else ()
    return [end for end in aborted if end.position in long and standing(facts, end.position).waits]


def _told_to_end(end: End) -> bool:
    return end.exception.startswith("KeyboardInterrupt") or (not end.exception and end.signal in STOPPED)


def _together(end: End, first: End) -> bool:
    """Whether an end is the same fault as the first one, on another rank at the same time."""
    if end is first:
        return True
    same = end.place == first.place and end.exception.partition(":")[0] == first.exception.partition(":")[0]
    return bool(first.exception) and same and end.time_ns - first.time_ns < SAME_TIME_NS
