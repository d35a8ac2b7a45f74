"""How much the host had queued ahead of the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import DeviceTrace


@dataclass(frozen=True, slots=True)
class Queue:
    """Over all streams of a trace; pieces whose launch is not in it are left out."""

    launches: int
    starved_share: float
    """Of the launches, those that found nothing queued and nothing running: the device had been waiting for them."""
    mean_length: float
    """Pieces launched and not yet done, over time."""
    max_length: int
    starved_gap_ns: float
    """The median time that the device had been idle at such a launch, until its work began; 0 where there was none."""


def queue_of(trace: DeviceTrace, work: Work, launch: NDArray[np.int64]) -> Queue | None:
    """None where no launch is known."""
    known = launch >= 0
    if not known.any():
        return None
    called = trace.start_ns[launch[known]]
    done = np.maximum(work.end[known], called)
    reach = np.concatenate(([work.start[0]], np.maximum.accumulate(work.end)[:-1]))[known]
    starved = called > reach
    gaps = (work.start[known] - reach)[starved]
    at = np.concatenate((called, done))
    change = np.concatenate((np.ones(len(called), np.int64), -np.ones(len(done), np.int64)))
    order = np.lexsort((change, at))  # done before launched, at one moment
    at, length = at[order], np.cumsum(change[order])
    span = int(at[-1] - at[0])
    return Queue(
        launches=len(called),
        starved_share=float(starved.mean()),
        mean_length=float((length[:-1] * np.diff(at)).sum() / span) if span else 0.0,
        max_length=int(length.max()),
        starved_gap_ns=float(np.median(gaps)) if len(gaps) else 0.0,
    )
