"""How far a rank had come with its own work when each of its collectives began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.device_traces.collectives import Collectives
from rankscope.analysis.imported.device_traces.intervals import Times, complement, union, until
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import KERNEL, OPERATOR, DeviceTrace


@dataclass(frozen=True, slots=True)
class Progress:
    """All columns are [call], sums since the start of the trace: the difference of two is what happened in between."""

    compute_ns: Times
    """Time in which kernels computed."""
    idle_ns: Times
    """Time in which the device did nothing."""
    kernels: Times
    """Kernels that had begun."""


def progress_of(trace: DeviceTrace, work: Work, calls: Collectives) -> Progress:
    """Of the device's work; of a trace without device of the host's operators."""
    if not len(work.busy.start):
        return _of_host(trace, calls)
    idle = complement(work.busy, work.first, work.last)
    begun = work.start[work.category == KERNEL]
    return Progress(
        until(work.compute, calls.start), until(idle, calls.start), np.searchsorted(begun, calls.start).astype(np.int64)
    )



def _of_host(trace: DeviceTrace, calls: Collectives) -> Progress:
    operators = trace.category == OPERATOR
    start = trace.start_ns[operators]
    busy = union(start, start + trace.duration_ns[operators])
    if not len(busy.start) or not len(calls):
        nothing = np.zeros(len(calls), np.int64)
        return Progress(nothing, nothing, nothing)
    idle = complement(busy, int(trace.start_ns.min()), max(int(calls.start[-1]), int(busy.end[-1])))
    begun = np.searchsorted(np.sort(start), calls.start).astype(np.int64)
    return Progress(until(busy, calls.start), until(idle, calls.start), begun)
