"""Kernels and operators by name."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.nesting import Nesting
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import COLLECTIVE, KERNEL, OPERATOR, RUNTIME, DeviceTrace

LONGEST_NAME: Final = 240
"""Of a kernel in a table: templates go on for thousands of characters."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All calls of one kernel."""

    name: str
    communicates: bool
    calls: int
    total_ns: int
    mean_ns: float
    median_ns: float
    min_ns: int
    max_ns: int
    blocks_per_sm: float | None
    """Weighted with duration, as the next one; None where not recorded."""
    occupancy: float | None
    """0 to 100."""
    longest_span: int
    """Of its longest call."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """All calls of one operator."""

    name: str
    calls: int
    host_self_ns: int
    """Without the operators and the calls of the runtime within it."""
    host_total_ns: int
    device_self_ns: int
    """Of the kernels and copies that it launched itself."""
    device_total_ns: int


def kernel_table(trace: DeviceTrace, work: Work) -> list[KernelRow]:
    """The kernel that took most time first."""
    chosen = np.isin(work.category, (KERNEL, COLLECTIVE))
    spans, length = work.span[chosen], (work.end - work.start)[chosen]
    if not len(spans):
        return []
    name = trace.name[spans]
    blocks, occupancy = _of_kernels(trace, spans)
    order = np.lexsort((length, name))
    name, spans, length = name[order], spans[order], length[order]
    blocks, occupancy = blocks[order], occupancy[order]
    first = np.flatnonzero(np.concatenate(([True], np.diff(name) != 0)))
    bounds = [*first.tolist(), len(name)]
    rows = []
    for begin, end in pairwise(bounds):
        part = length[begin:end]
        total = int(part.sum())
        rows.append(
            KernelRow(
                name=trace.names[name[begin]][:LONGEST_NAME],
                communicates=bool(trace.category[spans[begin]] == COLLECTIVE),
                calls=end - begin,
                total_ns=total,
                mean_ns=total / (end - begin),
                median_ns=float(np.median(part)),
                min_ns=int(part[0]),
                max_ns=int(part[-1]),
                blocks_per_sm=_weighted(blocks[begin:end], part),
                occupancy=_weighted(occupancy[begin:end], part),
                longest_span=int(spans[end - 1]),
            )
        )
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def _of_kernels(trace: DeviceTrace, spans: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Blocks per multiprocessor and occupancy of the given spans."""
    blocks = np.full(len(trace.start_ns), np.nan, np.float32)
    occupancy = np.full(len(trace.start_ns), np.nan, np.float32)
    blocks[trace.kernel_span] = trace.kernel_blocks_per_sm
    occupancy[trace.kernel_span] = trace.kernel_occupancy
    return blocks[spans], occupancy[spans]


def _weighted(values: NDArray[np.float32], weights: NDArray[np.int64]) -> float | None:
    known = ~np.isnan(values)
    total = int(weights[known].sum())
    return float((values[known] * weights[known]).sum() / total) if total else None


def operator_table(
    trace: DeviceTrace, work: Work, nesting: Nesting, above: NDArray[np.int64]
) -> list[OperatorRow]:
    """The operator with most host time of its own first. `above`: `launching_operators`."""
    spans = np.flatnonzero(trace.category == OPERATOR)
    if not len(spans):
        return []
    length = trace.duration_ns
    within = np.zeros(len(length), np.int64)
    around = nesting.nearest(trace, spans, OPERATOR)
    _charge(within, around, length[spans])
    calls = np.flatnonzero(trace.category == RUNTIME)
    calls = calls[nesting.nearest(trace, calls, RUNTIME) < 0]  # a driver's within a runtime's is that one's time
    _charge(within, nesting.nearest(trace, calls, OPERATOR), length[calls])
    device = np.zeros(len(length), np.int64)
    _charge(device, above, work.end - work.start)
    total = nesting.summed_up(device)
    number, at = np.unique(trace.name[spans], return_inverse=True)

    def summed(values: NDArray[np.int64]) -> list[int]:
        sums = np.zeros(len(number), np.int64)
        np.add.at(sums, at, values)
        return [int(value) for value in sums]

    # An operator within one of the same name would count its time twice.
    outer = _outermost_of_its_name(trace, spans, around)
    columns = zip(
        number.tolist(),
        np.bincount(at).tolist(),
        summed(np.maximum(length[spans] - within[spans], 0)),
        summed(np.where(outer, length[spans], 0)),
        summed(device[spans]),
        summed(np.where(outer, total[spans], 0)),
        strict=True,
    )
    rows = [OperatorRow(trace.names[name][:LONGEST_NAME], *rest) for name, *rest in columns]
    return sorted(rows, key=lambda row: (-row.host_self_ns, row.name))


def _charge(sums: NDArray[np.int64], to: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    """Add each value where `to` says; nowhere for -1."""
    known = to >= 0
    np.add.at(sums, to[known], values[known])


def _outermost_of_its_name(
    trace: DeviceTrace, spans: NDArray[np.int64], around: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the operator right around each of `spans` has another name."""
    outermost: NDArray[np.bool_] = (around < 0) | (trace.name[np.maximum(around, 0)] != trace.name[spans])
    return outermost


def launching_operators(
    trace: DeviceTrace, work: Work, launch: NDArray[np.int64], nesting: Nesting
) -> NDArray[np.int64]:
    """[piece] the innermost operator that launched it, by the call around the launch or, where that was not recorded,
    by the number that both carry; -1: none."""
    above = nesting.nearest(trace, launch, OPERATOR)
    missing = np.flatnonzero((above < 0) & (trace.external[work.span] >= 0))
    if not len(missing):
        return above
    operators = np.flatnonzero((trace.category == OPERATOR) & (trace.external >= 0))
    if len(operators):
        order = operators[np.argsort(trace.external[operators], kind="stable")]
        numbers, wanted = trace.external[order], trace.external[work.span[missing]]
        at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        # In some versions a kernel carries its correlation in that place, which is the number of no operator before it.
        hit = (numbers[at] == wanted) & (wanted != trace.correlation[work.span[missing]])
        above[missing[hit]] = order[at[hit]]
    return above
