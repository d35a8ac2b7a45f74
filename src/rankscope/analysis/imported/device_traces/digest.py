"""What is kept of one device trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.budget import PARTS, budget_of, loader_names, loading
from rankscope.analysis.imported.device_traces.collectives import Collectives, collectives_of
from rankscope.analysis.imported.device_traces.critical_path import critical_path
from rankscope.analysis.imported.device_traces.idle import Charged, charged, collecting, idle_of
from rankscope.analysis.imported.device_traces.launches import launches_of
from rankscope.analysis.imported.device_traces.memory import MemoryPeak, memory_peaks
from rankscope.analysis.imported.device_traces.nesting import Nesting, nesting_of
from rankscope.analysis.imported.device_traces.origins import Origin, origin_of
from rankscope.analysis.imported.device_traces.progress import Progress, progress_of
from rankscope.analysis.imported.device_traces.queue import Queue, queue_of
from rankscope.analysis.imported.device_traces.shares import shares_of
from rankscope.analysis.imported.device_traces.steps import Steps, steps_of
from rankscope.analysis.imported.device_traces.syncs import SyncRow, sync_count, syncs_of
from rankscope.analysis.imported.device_traces.tables import (
    KernelRow,
    OperatorRow,
    kernel_table,
    launching_operators,
    operator_table,
)  # fmt: skip
from rankscope.analysis.imported.device_traces.work import Work, work_of
from rankscope.analysis.imported.examiner import Digest, Shares
from rankscope.records.imported.device_trace import ANNOTATION, OPERATOR, PYTHON, DeviceTrace

TABLE_ROWS: Final = 48
"""Kept of each table; what is left out of it took the least time."""
MOST_STEPS: Final = 2_000


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The critical path through one step, in ns by what it runs through."""

    step: int | None
    host: int
    compute: int
    communication: int
    copy: int
    launch_delay: int
    kernel_gap: int


@dataclass(frozen=True, slots=True)
class TraceDigest(Digest):
    """One trace, however large its file was: some ten kilobytes."""

    world_size: int | None
    wall_clock: bool
    complete: bool
    dropped: int
    first_ns: int
    last_ns: int
    """Of all its events."""
    device_name: str
    with_stacks: bool
    """The profiler recorded Python's frames, which makes the host slower."""
    shares: Shares | None
    """None: no device did anything."""
    step_numbers: tuple[int, ...]
    step_ns: tuple[int, ...]
    budget_ns: tuple[float, ...]
    """Of the mean step, by `PARTS`; empty where no steps are marked."""
    idle: Charged | None
    queue: Queue | None
    kernels: tuple[KernelRow, ...]
    kernel_calls: int
    kernel_ns: int
    """Of all kernels that compute."""
    kernel_origin: Origin | None
    """Of the longest call of the first of `kernels` that computes."""
    operators: tuple[OperatorRow, ...]
    """By host time of their own."""
    syncs: tuple[SyncRow, ...]
    sync_calls: int
    loader: str
    """How the loader's iterator is called; empty: no loading was recorded."""
    loading_ns: int
    loader_calls: int
    loading_origin: Origin | None
    collecting_ns: int
    """Of Python's garbage collector, where it was recorded."""
    collectives: Collectives
    progress: Progress
    memory: tuple[MemoryPeak, ...]
    path: PathSummary | None

    @property
    def window_ns(self) -> int:
        """Of the device where there is one, else of the host."""
        return round(self.shares.window_us * 1e3) if self.shares is not None else self.last_ns - self.first_ns

    @property
    def mean_step_ns(self) -> float | None:
        return float(np.mean(self.step_ns)) if self.step_ns else None

    def budget(self, part: str) -> float | None:
        """ns of the mean step."""
        return self.budget_ns[PARTS.index(part)] if self.budget_ns else None


def digest_of(trace: DeviceTrace) -> TraceDigest:
    """Everything that later comparisons need."""
    work = work_of(trace)
    launch = launches_of(trace, work)
    steps = steps_of(trace, work, launch)
    nesting = nesting_of(trace)
    some_work = work.window_ns > 0
    idle = idle_of(trace, work, launch) if some_work else None
    kernels = kernel_table(trace, work)
    above = launching_operators(trace, work, launch, nesting)
    operators = operator_table(trace, work, nesting, above)
    calls = collectives_of(trace)
    budget = budget_of(trace, work, steps) if len(steps) else np.empty((0, len(PARTS)))
    loads = loading(trace)
    loader, loader_calls, loading_origin = _loader(trace, nesting)
    computing = [row for row in kernels if not row.communicates]
    end = trace.start_ns + trace.duration_ns
    return TraceDigest(
        file=trace.file,
        rank=trace.rank,
        world_size=trace.world_size,
        wall_clock=trace.wall_clock,
        complete=trace.complete,
        dropped=trace.dropped,
        first_ns=int(trace.start_ns.min()),
        last_ns=int(end.max()),
        device_name=next((name for name in trace.device_names if name), ""),
        with_stacks=bool(len(trace.python_span) or len(trace.stack_span)),
        shares=shares_of(work, trace.file, trace.rank),
        step_numbers=tuple(steps.number[:MOST_STEPS].tolist()),
        step_ns=tuple((steps.end - steps.start)[:MOST_STEPS].tolist()),
        budget_ns=tuple(budget.mean(axis=0).tolist()) if len(budget) else (),
        idle=charged(trace, idle) if idle is not None else None,
        queue=queue_of(trace, work, launch) if some_work else None,
        kernels=tuple(kernels[:TABLE_ROWS]),
        kernel_calls=sum(row.calls for row in computing),
        kernel_ns=sum(row.total_ns for row in computing),
        kernel_origin=_kernel_origin(trace, work, launch, nesting, computing),
        operators=tuple(operators[:TABLE_ROWS]),
        syncs=syncs_of(trace, idle, nesting) if idle is not None else (),
        sync_calls=sync_count(trace),
        loader=loader,
        loading_ns=loads.total,
        loader_calls=loader_calls,
        loading_origin=loading_origin,
        collecting_ns=collecting(trace).total,
        collectives=calls,
        progress=progress_of(trace, work, calls),
        memory=memory_peaks(trace),
        path=_path(trace, work, launch, steps),
    )


def _kernel_origin(
    trace: DeviceTrace, work: Work, launch: NDArray[np.int64], nesting: Nesting, computing: list[KernelRow]
) -> Origin | None:
    if not computing:
        return None
    piece = int(np.flatnonzero(work.span == computing[0].longest_span)[0])
    return origin_of(trace, nesting, int(launch[piece])) if launch[piece] >= 0 else None


def _loader(trace: DeviceTrace, nesting: Nesting) -> tuple[str, int, Origin | None]:
    """(name of the loader's iterator, how often it was asked, what took longest within it)."""
    numbers = loader_names(trace.names)
    asked = np.flatnonzero(np.isin(trace.name, numbers) & np.isin(trace.category, (OPERATOR, ANNOTATION, PYTHON)))
    if not len(asked):
        return "", 0, None
    marked = asked[trace.category[asked] != PYTHON]  # where both were recorded a call would count twice
    asked = marked if len(marked) else asked
    longest = int(asked[np.argmax(trace.duration_ns[asked])])
    within = np.flatnonzero((nesting.parent == longest) & (trace.category == OPERATOR))
    inner = int(within[np.argmax(trace.duration_ns[within])]) if len(within) else longest
    name = trace.names[trace.name[longest]].removeprefix("enumerate(DataLoader)#").removesuffix(".__next__")
    return name, len(asked), origin_of(trace, nesting, inner)


def _path(trace: DeviceTrace, work: Work, launch: NDArray[np.int64], steps: Steps) -> PathSummary | None:
    """Through the step of median length, or the whole trace where no step is marked."""
    if len(steps):
        length = steps.end - steps.start
        at = int(np.argsort(length, kind="stable")[len(length) // 2])
        number, first, last = int(steps.number[at]), int(steps.host_start[at]), int(steps.host_end[at])
    else:
        number, first, last = None, int(trace.start_ns.min()), int((trace.start_ns + trace.duration_ns).max())
    path = critical_path(trace, work, launch, first, last)
    if path is None:
        return None
    return PathSummary(
        number, path.host_ns, path.compute_ns, path.communication_ns, path.copy_ns, path.launch_delay_ns,
        path.kernel_gap_ns,
    )  # fmt: skip
