"""How fast collectives move data, and how unevenly ranks come to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.device_traces.traces import Traces

_BUS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
"""Times (n - 1) / n: what crosses the slowest link for each byte, as nccl-tests count it."""


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """All matched calls of one operation, size and group."""

    group: str
    operation: str
    size: int
    """Bytes; -1: not recorded."""
    members: tuple[int, ...]
    """Positions of the ranks in the traces."""
    num_ranks: int
    calls: int
    transfer_ns: float
    """Median of the shortest duration over ranks."""
    skew_ns: float
    """Median of the longest wait for the last rank."""
    gb_per_s: float | None
    """Bytes over transfer time, in the median; None where the size is not recorded."""
    bus_gb_per_s: float | None


def bandwidth_of(traces: Traces) -> list[BandwidthRow]:
    """The largest total transfer time first."""
    rows = []
    for group in traces.groups:
        transfer = group.duration.min(axis=0)
        skew = group.wait.max(axis=0)
        for operation, size in sorted(set(zip(group.operation, group.size.tolist(), strict=True))):
            same = np.array([one == operation for one in group.operation]) & (group.size == size)
            median = float(np.median(transfer[same]))
            rate = size / median if size > 0 and median > 0 else None  # bytes per ns are GB/s
            ranks = group.num_ranks if group.num_ranks > 0 else len(group.members)
            factor = _BUS.get(operation)
            rows.append(
                BandwidthRow(
                    group=group.group,
                    operation=operation,
                    size=size,
                    members=group.members,
                    num_ranks=ranks,
                    calls=int(same.sum()),
                    transfer_ns=median,
                    skew_ns=float(np.median(skew[same])),
                    gb_per_s=rate,
                    bus_gb_per_s=rate * factor * (ranks - 1) / ranks if rate and factor and ranks > 1 else None,
                )
            )
    return sorted(rows, key=lambda row: -row.transfer_ns * row.calls)
