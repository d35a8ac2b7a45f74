"""Hardware counters that CUPTI's range profiler took for each kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.nesting import Nesting
from rankscope.records.imported.device_trace import OPERATOR, PROFILER_RANGE, RUNTIME, DeviceTrace

_LAUNCH: Final = re.compile(r"Launch(Cooperative)?Kernel")


@dataclass(frozen=True, slots=True)
class CounterRow:
    """One kernel's range."""

    kernel: str
    counters: dict[str, float]
    operators: tuple[str, ...]
    """Around its launch, outermost first; empty where launches and ranges cannot be told to belong together."""


def counter_table(trace: DeviceTrace, nesting: Nesting) -> list[CounterRow]:
    """One row a range, in order of time. Kernels run one after the other under this profiler, so that the n-th range
    is the n-th launch; their times say nothing."""
    ranges = _by_start(trace, np.flatnonzero(trace.category == PROFILER_RANGE))
    launching = [at for at, name in enumerate(trace.names) if _LAUNCH.search(name)]
    calls = np.flatnonzero((trace.category == RUNTIME) & np.isin(trace.name, np.array(launching, np.int32)))
    calls = _by_start(trace, calls[nesting.nearest(trace, calls, RUNTIME) < 0])
    counters: dict[int, dict[str, float]] = {}
    for span, name, value in zip(
        trace.counter_span.tolist(), trace.counter_name.tolist(), trace.counter_value.tolist(), strict=True
    ):
        counters.setdefault(span, {})[trace.names[name]] = value
    together = len(calls) == len(ranges)
    return [
        CounterRow(
            trace.names[trace.name[span]],
            counters.get(span, {}),
            _operators(trace, nesting, int(calls[at])) if together else (),
        )
        for at, span in enumerate(ranges.tolist())
    ]


def _by_start(trace: DeviceTrace, spans: NDArray[np.int64]) -> NDArray[np.int64]:
    return spans[np.argsort(trace.start_ns[spans], kind="stable")]


def _operators(trace: DeviceTrace, nesting: Nesting, call: int) -> tuple[str, ...]:
    around = [span for span in nesting.around(call) if trace.category[span] == OPERATOR]
    return tuple(trace.names[trace.name[span]] for span in reversed(around))
