"""Steps, as `torch.profiler.profile.step()` marks them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.intervals import Times
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import ANNOTATION, DeviceTrace

_STEP: Final = re.compile(r"ProfilerStep#(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Steps:
    """[step] in order of time; empty where the trace marks none."""

    number: NDArray[np.int64]
    host_start: Times
    host_end: Times
    start: Times
    """When the host began with it and the device was done with the step before."""
    end: Times
    """When host and device were done with it."""

    @property
    def mean_ns(self) -> float | None:
        return float((self.end - self.start).mean()) if len(self.number) else None

    def __len__(self) -> int:
        return len(self.number)


def steps_of(trace: DeviceTrace, work: Work, launch: NDArray[np.int64]) -> Steps:
    """The steps on the host's side, each prolonged until the device has done what was launched in it."""
    numbers = {at: int(match[1]) for at, name in enumerate(trace.names) if (match := _STEP.match(name))}
    spans = np.flatnonzero((trace.category == ANNOTATION) & np.isin(trace.name, np.array(list(numbers), np.int32)))
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    number = np.array([numbers[at] for at in trace.name[spans].tolist()], np.int64)
    _, first = np.unique(number, return_index=True)  # several threads may be marked
    first = np.sort(first)
    spans, number = spans[first], number[first]
    host_start = trace.start_ns[spans]
    host_end = host_start + trace.duration_ns[spans]
    end = host_end.copy()
    known = launch >= 0
    if known.any() and len(spans):
        at = np.searchsorted(host_start, trace.start_ns[launch[known]], side="right") - 1
        np.maximum.at(end, at[at >= 0], work.end[known][at >= 0])
    end = np.maximum.accumulate(end)
    start = host_start.copy()
    start[1:] = np.minimum(np.maximum(host_start[1:], end[:-1]), end[1:])
    return Steps(number, host_start, host_end, start, end)
