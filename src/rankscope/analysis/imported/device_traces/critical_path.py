"""The longest chain of what had to wait for each other: what takes time off it takes time off the step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.dependencies import (
    KERNEL_GAP,
    LAUNCH_DELAY,
    RUNS,
    Dependencies,
    dependencies_of,
)  # fmt: skip
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import COLLECTIVE, DEVICE_WORK, KERNEL, DeviceTrace

MOST_SPANS: Final = 100_000
"""In a window: a chain is followed span by span."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain through one window."""

    first_ns: int
    last_ns: int
    spans: NDArray[np.int64]
    """[point] the span whose start or end it is."""
    at_start: NDArray[np.bool_]
    """[point]"""
    kind: NDArray[np.uint8]
    """[point - 1] of the edge to the next point: `RUNS`, `FOLLOWS`, `LAUNCH_DELAY`, `KERNEL_GAP`, `WAITS`."""
    ns: NDArray[np.int64]
    """[point - 1] what that edge takes."""
    host_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    launch_delay_ns: int
    kernel_gap_ns: int

    @property
    def total_ns(self) -> int:
        return int(self.ns.sum())


def critical_path(
    trace: DeviceTrace, work: Work, launch: NDArray[np.int64], first: int, last: int
) -> CriticalPath | None:
    """Through the calls that begin from `first` to `last` and what they launched; None where there is nothing, or
    more than `MOST_SPANS`.

    The method is that of HolisticTraceAnalysis: calls nest on threads, kernels follow each other on streams, waits lead
    back from the device to the host; with a graph launch all its kernels hang on the one call.
    """
    inside = int(((trace.start_ns >= first) & (trace.start_ns <= last)).sum())
    if not inside or inside > MOST_SPANS:
        return None
    graph = dependencies_of(trace, work, launch, first, last)
    points = _longest(graph)
    if len(points) < 2:
        return None
    spans = graph.spans[np.array([point[0] // 2 for point in points])]
    at_start = np.array([point[0] % 2 == 0 for point in points])
    edges = np.array([point[1] for point in points[1:]], np.int64)
    kind, ns = np.array(graph.kind, np.uint8)[edges], np.array(graph.weight, np.int64)[edges]
    sums: Counter[str] = Counter()
    for edge_kind, weight, span, next_span in zip(kind.tolist(), ns.tolist(), spans[:-1], spans[1:], strict=True):
        sums[_charged(trace, edge_kind, int(span), int(next_span))] += weight
    return CriticalPath(
        first, last, spans, at_start, kind, ns, sums["host"], sums["compute"], sums["communication"], sums["copy"],
        sums["launch delay"], sums["kernel gap"],
    )  # fmt: skip


def _charged(trace: DeviceTrace, kind: int, span: int, next_span: int) -> str:
    if kind == LAUNCH_DELAY:
        return "launch delay"
    if kind == KERNEL_GAP:
        return "kernel gap"
    category = int(trace.category[span])
    if kind == RUNS and span == next_span and category in DEVICE_WORK:
        return {KERNEL: "compute", COLLECTIVE: "communication"}.get(category, "copy")
    return "host"


def _longest(graph: Dependencies) -> list[tuple[int, int]]:
    """(point, edge that leads to it) along the chain; the first point's edge is -1."""
    count = len(graph.time)
    outgoing: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for edge, (tail, head) in enumerate(zip(graph.tail, graph.head, strict=True)):
        outgoing[tail].append(edge)
        missing[head] += 1
    length = [0] * count
    through = [-1] * count
    # Of equally long ways the one over the later point, as the one that could not have been earlier.
    later = np.empty(count, np.int64)
    later[np.argsort(graph.time, kind="stable")] = np.arange(count)
    rank = later.tolist()
    ready = [point for point in range(count) if not missing[point]]
    while ready:
        point = ready.pop()
        for edge in outgoing[point]:
            head = graph.head[edge]
            new = length[point] + graph.weight[edge]
            old = through[head]
            if old < 0 or (new, rank[point]) > (length[head], rank[graph.tail[old]]):
                length[head], through[head] = new, edge
            missing[head] -= 1
            if not missing[head]:
                ready.append(head)
    if not count:
        return []
    point = min(range(count), key=lambda at: (-length[at], rank[at]))  # what follows at no cost is not on it
    chain = []
    while True:
        edge = through[point]
        chain.append((point, edge))
        if edge < 0:
            return chain[::-1]
        point = graph.tail[edge]
