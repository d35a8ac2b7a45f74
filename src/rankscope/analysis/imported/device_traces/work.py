"""What the device did, in order of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.intervals import Intervals, Times, complement, either, union
from rankscope.records.imported.device_trace import COLLECTIVE, DEVICE_WORK, KERNEL, MEMCPY, MEMSET, DeviceTrace


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels, copies and fills of one trace, by start. All columns are [piece]."""

    span: NDArray[np.int64]
    """Position in the trace."""
    start: Times
    end: Times
    category: NDArray[np.uint8]
    compute: Intervals
    communication: Intervals
    memory: Intervals
    """Copies and fills."""
    busy: Intervals

    @property
    def first(self) -> int:
        """When the device began to work; there is work."""
        return int(self.busy.start[0])

    @property
    def last(self) -> int:
        """When it ended."""
        return int(self.busy.end[-1])

    @property
    def window_ns(self) -> int:
        return self.last - self.first if len(self.busy.start) else 0

    @property
    def idle(self) -> Intervals:
        """When nothing ran, between the first and the last piece of work."""
        return complement(self.busy, self.first, self.last)


def work_of(trace: DeviceTrace) -> Work:
    """All the work of all the devices of a trace: one process mostly has one."""
    span = np.flatnonzero(np.isin(trace.category, DEVICE_WORK))
    span = span[np.argsort(trace.start_ns[span], kind="stable")]
    start, category = trace.start_ns[span], trace.category[span]
    end = start + trace.duration_ns[span]

    def of(*kinds: int) -> Intervals:
        chosen = np.isin(category, kinds)
        return union(start[chosen], end[chosen])

    compute, communication, memory = of(KERNEL), of(COLLECTIVE), of(MEMCPY, MEMSET)
    busy = either(either(compute, communication), memory)
    return Work(span, start, end, category, compute, communication, memory, busy)
