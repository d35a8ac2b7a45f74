"""What is kept of each GPU of an export: its shares, what ran longest, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.activities.waiting import Waiting, waiting
from rankscope.analysis.imported.device_traces.intervals import Intervals, both, either, minus, union
from rankscope.analysis.imported.examiner import Digest
from rankscope.records.imported import device_activity as table
from rankscope.records.imported.device_activity import DIRECTION_NAMES, DeviceActivity

LONGEST: Final = 8
"""Rows that are kept of each list: more are not read."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All calls of one kernel."""

    name: str
    calls: int
    ns: int


@dataclass(frozen=True, slots=True)
class CopyRow:
    """All copies in one direction."""

    direction: int
    """As in `device_activity`."""
    copies: int
    bytes: int
    ns: int
    exposed_ns: int
    """While no kernel runs."""
    pageable_bytes: int
    range: str
    """The innermost marked range in which most of them were asked for; empty where none is marked."""

    @property
    def what(self) -> str:
        return DIRECTION_NAMES[self.direction]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of one file."""

    number: int
    name: str
    window_ns: int
    """From its first to its last activity."""
    activities: int
    kernel_calls: int
    kernel_ns: int
    """Sum over kernels, those of NCCL included."""
    compute_ns: int
    communication_ns: int
    """Covered by kernels, and by those that communicate."""
    exposed_communication_ns: int
    exposed_memory_ns: int
    idle_ns: int
    kernels: tuple[KernelRow, ...]
    """Longest first."""
    copies: tuple[CopyRow, ...]
    """Those with most exposed time first."""
    waiting: Waiting | None
    """What its idle time goes to; None where the host's calls are not in the file."""
    collectives: NDArray[np.int64]
    """ns of each collective, in order."""
    collective_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActivityDigest(Digest):
    """One export."""

    gpus: tuple[Gpu, ...]
    product: str
    schema: str
    absent: tuple[str, ...]
    dropped: int


def digest(t: DeviceActivity) -> ActivityDigest:
    """What is worth keeping of an export."""
    gpus = tuple(_gpu(t, device.number, device.name) for device in t.devices)
    return ActivityDigest(
        file=t.file, rank=t.rank, gpus=gpus, product=t.product, schema=t.schema, absent=t.absent, dropped=t.dropped
    )


def _gpu(t: DeviceActivity, number: int, name: str) -> Gpu:
    rows = np.flatnonzero(t.device == number)
    start, end, category = t.start_ns[rows], t.end_ns[rows], t.category[rows]

    def of(*kinds: int) -> Intervals:
        chosen = np.isin(category, kinds)
        return union(start[chosen], end[chosen])

    compute, communication = of(table.KERNEL, table.GRAPH), of(table.COLLECTIVE)
    memory = of(table.COPY, table.SET)
    running = either(compute, communication)
    busy = either(running, memory)
    window = int(end.max() - start.min())
    kernels = np.isin(category, (table.KERNEL, table.COLLECTIVE))
    collectives = rows[category == table.COLLECTIVE]
    return Gpu(
        number=number,
        name=name,
        window_ns=window,
        activities=len(rows),
        kernel_calls=int(kernels.sum()),
        kernel_ns=int((end - start)[kernels].sum()),
        compute_ns=compute.total,
        communication_ns=communication.total,
        exposed_communication_ns=minus(communication, compute).total,
        exposed_memory_ns=minus(memory, running).total,
        idle_ns=window - busy.total,
        kernels=_kernels(t, rows[kernels]),
        copies=_copies(t, rows[category == table.COPY], running),
        waiting=waiting(t, rows, busy),
        collectives=t.end_ns[collectives] - t.start_ns[collectives],
        collective_names=tuple(t.names[n] for n in t.name[collectives].tolist()),
    )


def _kernels(t: DeviceActivity, rows: NDArray[np.intp]) -> tuple[KernelRow, ...]:
    names, at, calls = np.unique(t.name[rows], return_inverse=True, return_counts=True)
    ns = np.bincount(at, (t.end_ns - t.start_ns)[rows].astype(float), len(names))
    longest = np.argsort(-ns)[:LONGEST]
    return tuple(
        KernelRow(t.names[names[i]] if names[i] >= 0 else "unnamed", int(calls[i]), int(ns[i])) for i in longest
    )


def _copies(t: DeviceActivity, rows: NDArray[np.intp], running: Intervals) -> tuple[CopyRow, ...]:
    found = []
    for direction in np.unique(t.direction[rows]).tolist():
        mine = rows[t.direction[rows] == direction]
        start, end = t.start_ns[mine], t.end_ns[mine]
        size = np.maximum(t.bytes[mine], 0)
        copying = union(start, end)
        found.append(
            CopyRow(
                direction=direction,
                copies=len(mine),
                bytes=int(size.sum()),
                ns=int((end - start).sum()),
                exposed_ns=copying.total - both(copying, running).total,
                pageable_bytes=int(size[t.pageable[mine]].sum()),
                range=_range_of(t, mine),
            )
        )
    return tuple(sorted(found, key=lambda row: -row.exposed_ns))


def _range_of(t: DeviceActivity, rows: NDArray[np.intp]) -> str:
    """The marked range, of the program's own, in which the longest of the copies were asked for."""
    if not len(t.range_start_ns) or not len(t.call_start_ns):
        return ""
    longest = rows[np.argsort(-(t.end_ns - t.start_ns)[rows])[:64]]
    weights: dict[str, int] = {}
    for row in longest.tolist():
        calls = np.flatnonzero(t.call_correlation == t.correlation[row])
        if t.process[row] >= 0:
            calls = calls[t.process_of(t.call_thread[calls]) == t.process[row]]
        if not len(calls):
            continue
        call = int(calls[0])
        around = np.flatnonzero(
            (t.range_thread == t.call_thread[call])
            & (t.range_start_ns <= t.call_start_ns[call])
            & (t.range_end_ns >= t.call_end_ns[call])
        )
        for at in around[::-1].tolist():
            name = t.names[t.range_name[at]] if t.range_name[at] >= 0 else ""
            # Operators of PyTorch say what a copy is, not why it is there.
            if name and not name.startswith("aten::"):
                weights[name] = weights.get(name, 0) + int(t.end_ns[row] - t.start_ns[row])
                break
    return max(weights, key=lambda name: weights[name], default="")


