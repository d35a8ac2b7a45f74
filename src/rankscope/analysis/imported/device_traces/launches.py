"""Which call of the host launched each piece of the device's work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import RUNTIME, DeviceTrace


def launches_of(trace: DeviceTrace, work: Work) -> NDArray[np.int64]:
    """[piece] the launching span; -1 where it lies before the trace, or nothing tells. A graph launch has many
    pieces."""
    calls = np.flatnonzero((trace.category == RUNTIME) & (trace.correlation >= 0))
    found = np.full(len(work.span), -1, np.int64)
    if not len(calls) or not len(work.span):
        return found
    # Two calls share a number where one is made within the other (runtime over driver): the outer one begins first.
    order = np.lexsort((trace.start_ns[calls], trace.correlation[calls]))
    calls = calls[order]
    numbers = trace.correlation[calls]
    wanted = trace.correlation[work.span]
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    known = (numbers[at] == wanted) & (wanted >= 0)
    found[known] = calls[at[known]]
    return found
