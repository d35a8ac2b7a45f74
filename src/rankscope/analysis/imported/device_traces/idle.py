"""Why the device had nothing to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.budget import host_spans, loading
from rankscope.analysis.imported.device_traces.intervals import Intervals, Times, both, minus, union
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import PYTHON, RUNTIME, DeviceTrace

_WAITS: Final = re.compile(
    r"^(cuda|hip|cu|xpu|mtia)\w*Synchronize|^cudaMemcpy$|^hipMemcpy(WithStream)?$|^urQueueFinish|^urEventWait"
)
_COLLECTOR: Final = re.compile(
    r"Python GC|^<built-in (function|method) collect( of module 'gc')?\b|\bgc\.collect\b|^gc_collect", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Idle:
    """The gaps of the device, and whom they are charged to. All columns are [gap]."""

    start: Times
    end: Times
    next_launch: NDArray[np.int64]
    """The span that launched what ended the gap; -1: unknown."""
    host_wait: Times
    """ns until the host made the launch: nothing was queued."""
    launch_delay: Times
    """ns from the launch to the start, where nothing else was in the way."""
    kernel_gap: Times
    """ns though the work was queued: switching kernels, waiting for another stream."""
    unknown: Times
    """ns where the launch is not in the trace."""
    after_wait: NDArray[np.int64]
    """The span in which the host waited for the device when it ran dry; -1: it did not."""
    waiting_for_host: Intervals
    """`host_wait` as times."""


def idle_of(trace: DeviceTrace, work: Work, launch: NDArray[np.int64]) -> Idle:
    """Every gap in order of time."""
    start, end = work.idle.start, work.idle.end
    following = np.searchsorted(work.start, end, side="left")  # one piece begins exactly there
    by = launch[following] if len(following) else np.empty(0, np.int64)
    called = np.where(by >= 0, trace.start_ns[by], start)
    known = by >= 0
    late = known & (called > start)
    dry_until = np.clip(called, start, end)
    host_wait = np.where(late, dry_until - start, 0)
    waits = waits_of(trace)
    return Idle(
        start=start,
        end=end,
        next_launch=by,
        host_wait=host_wait,
        launch_delay=np.where(late, end - dry_until, 0),
        kernel_gap=np.where(known & ~late, end - start, 0),
        unknown=np.where(known, 0, end - start),
        after_wait=np.where(late, _under_way(trace, waits, start), -1),
        waiting_for_host=union(start[late], dry_until[late]),
    )


def waits_of(trace: DeviceTrace) -> NDArray[np.int64]:
    """Calls that return only when the device is done, by start."""
    numbers = np.array([at for at, name in enumerate(trace.names) if _WAITS.search(name)], np.int32)
    spans = np.flatnonzero((trace.category == RUNTIME) & np.isin(trace.name, numbers))
    return spans[np.argsort(trace.start_ns[spans], kind="stable")]


def _under_way(trace: DeviceTrace, spans: NDArray[np.int64], at: Times) -> NDArray[np.int64]:
    """For each moment the last of `spans` that had begun, if it was not over; -1."""
    if not len(spans):
        return np.full(len(at), -1, np.int64)
    start = trace.start_ns[spans]
    end = start + trace.duration_ns[spans]
    last = np.searchsorted(start, at, side="right") - 1
    inside = (last >= 0) & (end[np.maximum(last, 0)] >= at)
    return np.where(inside, spans[np.maximum(last, 0)], -1)


@dataclass(frozen=True, slots=True)
class Charged:
    """ns of the device's idle time by what the host was at: each moment counts once."""

    data: int
    """It asked the loader for a batch."""
    collector: int
    """Python's garbage collector ran."""
    sync: int
    """It had waited for the device, and so had queued nothing to follow."""
    launching: int
    """Everything else: it was on its way to the next launch."""
    launch_delay: int
    kernel_gap: int
    unknown: int


def charged(trace: DeviceTrace, idle: Idle) -> Charged:
    """The sums over all gaps."""
    waiting = idle.waiting_for_host
    data = both(waiting, loading(trace))
    rest = minus(waiting, data)
    collector = both(rest, collecting(trace))
    rest = minus(rest, collector)
    synced = idle.after_wait >= 0
    sync = both(rest, union(idle.start[synced], idle.end[synced]))
    return Charged(
        data=data.total,
        collector=collector.total,
        sync=sync.total,
        launching=rest.total - sync.total,
        launch_delay=int(idle.launch_delay.sum()),
        kernel_gap=int(idle.kernel_gap.sum()),
        unknown=int(idle.unknown.sum()),
    )


def collecting(trace: DeviceTrace) -> Intervals:
    """When the garbage collector ran, where that was recorded: with Python's frames, or as events of its own."""
    numbers = np.array([at for at, name in enumerate(trace.names) if _COLLECTOR.search(name)], np.int32)
    return host_spans(trace, np.isin(trace.name, numbers) & (trace.category == PYTHON)) if len(numbers) else union(
        np.empty(0, np.int64), np.empty(0, np.int64)
    )
