"""What one device trace shows, lane by lane: threads of the host, then streams of its devices."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.device_trace import CATEGORY_NAMES, DEVICE_WORK, HOST, RUNTIME, DeviceTrace, Lane
from rankscope.report.timeline.batch import NO_NUMBER, NONE, Batch, Draft
from rankscope.report.timeline.parts import ENDS, STARTS, Floats, Flow, Ints, Mask
from rankscope.report.timeline.window import Window

MOST_HARDWARE_COUNTERS = 32
"""Of all profiler ranges; more are no use as arguments of a slice."""


def trace_lanes(
    trace: DeviceTrace, offset_ns: int, window: Window, collectives: Flow, first_flow: int
) -> Iterator[tuple[str, Batch]]:
    """(name, what is drawn) of each lane. `collectives`: a flow over all spans; launches and what they launched are
    joined by flows that count up from `first_flow`."""
    start = trace.start_ns - offset_ns
    end = start + trace.duration_ns
    inside = np.flatnonzero(window.touched(start, end))
    by_lane = inside[np.argsort(trace.lane[inside], kind="stable")]
    cuts = np.searchsorted(trace.lane[by_lane], np.arange(len(trace.lanes) + 1))
    launches = _launch_flow(trace, inside, first_flow)
    numbers, texts = _arguments(trace)
    for lane in sorted(range(len(trace.lanes)), key=lambda lane: _order(trace.lanes[lane])):
        rows = np.sort(by_lane[cuts[lane] : cuts[lane + 1]])
        batch = Batch()
        name = batch.texts(trace.name[rows].astype(np.int64), lambda at: trace.names[at] or "?")
        category = batch.texts(trace.category[rows].astype(np.int64), lambda at: CATEGORY_NAMES[at])
        mine: dict[str, Ints | Floats] = {}
        for label, (of_rows, values) in numbers.items():
            if (found := _spread(of_rows, values, rows)) is not None:
                mine[label] = found
        said: dict[str, Ints] = {}
        for label, (of_rows, values) in texts.items():
            if (found := _spread(of_rows, values.astype(np.int64), rows)) is not None:
                at = np.where(found == NO_NUMBER, NONE, found).astype(np.int64)
                said[label] = batch.texts(at, lambda at: trace.names[at] if at >= 0 else "")
        flows = tuple(
            Flow(flow.id[rows], flow.role[rows]) for flow in (collectives, launches) if flow.role[rows].any()
        )
        batch.add(Draft(start[rows], end[rows], name, category, mine, said, flows))
        yield _lane_name(trace, lane), batch


def memory_readings(trace: DeviceTrace, offset_ns: int, window: Window) -> Iterator[tuple[str, str, Ints, Floats]]:
    """(name, unit, times, values) of the allocators' counters of each device."""
    time = trace.memory_ns - offset_ns
    for device in np.unique(trace.memory_device).tolist():
        where = "host memory" if device == HOST else f"memory of device {device}"
        for what, values in (("allocated", trace.memory_allocated), ("reserved", trace.memory_reserved)):
            rows = np.flatnonzero(
                (trace.memory_device == device) & (values >= 0) & (time >= window.begin_ns) & (time <= window.end_ns)
            )
            if len(rows) and values[rows].any():
                rows = rows[np.argsort(time[rows], kind="stable")]
                yield f"{where}, {what}", "bytes", time[rows], values[rows].astype(np.float64)


def _order(lane: Lane) -> tuple[bool, int, str, int, str]:
    number = int(lane.name) if lane.name.isascii() and lane.name.isdigit() else -1
    return lane.device != HOST, lane.device, lane.process, number, lane.name


def _lane_name(trace: DeviceTrace, at: int) -> str:
    """`thread 4711 (python)`, `stream 7`; with the process where it is another one, with the device of several."""
    lane = trace.lanes[at]
    host = lane.device == HOST
    name = f"{'thread' if host else 'stream'} {lane.name}"
    if lane.label and lane.name not in lane.label.split():
        name += f" ({lane.label})"
    alike = Counted(other.process for other in trace.lanes if (other.device == HOST) == host)
    if host and lane.process != alike.most_common(1)[0][0]:
        name += f" of process {lane.process}"
    elif not host and len({other.device for other in trace.lanes} - {HOST}) > 1:
        name = f"device {lane.device}, {name}"
    return name


def _arguments(
    trace: DeviceTrace,
) -> tuple[dict[str, tuple[Ints, Ints | Floats]], dict[str, tuple[Ints, Ints]]]:
    """(spans, values) of each argument: numbers, and texts as positions in the trace's names."""

    def known(spans: NDArray[np.int32], values: NDArray[np.integer]) -> tuple[Ints, Ints]:
        there = values >= 0
        return spans[there].astype(np.int64), values[there].astype(np.int64)

    def measured(spans: NDArray[np.int32], values: NDArray[np.floating]) -> tuple[Ints, Floats]:
        return spans.astype(np.int64), values.astype(np.float64)

    every = np.arange(len(trace.start_ns), dtype=np.int32)
    collective = trace.collective_span
    numbers: dict[str, tuple[Ints, Ints | Floats]] = {
        "correlation": known(every, trace.correlation),
        "bytes": known(trace.copy_span, trace.copy_bytes),
        "blocks per SM": measured(trace.kernel_span, trace.kernel_blocks_per_sm),
        "occupancy %": measured(trace.kernel_span, trace.kernel_occupancy),
        "sequence": known(collective, trace.collective_sequence),
        "elements in": known(collective, trace.collective_elements_in),
        "elements out": known(collective, trace.collective_elements_out),
        "group size": known(collective, trace.collective_group_size),
        "autograd sequence": known(trace.sequence_span, trace.sequence_number),
    }
    for at in np.unique(trace.counter_name)[:MOST_HARDWARE_COUNTERS].tolist():
        rows = trace.counter_name == at
        numbers[trace.names[at]] = measured(trace.counter_span[rows], trace.counter_value[rows])
    texts = {
        "operation": known(collective, trace.collective_operation),
        "group": known(collective, trace.collective_group),
        "ranks": known(collective, trace.collective_ranks),
        "dtype": known(collective, trace.collective_dtype),
        "stack": known(trace.stack_span, trace.stack_text),
        "module": known(trace.module_span, trace.module_text),
    }
    return numbers, texts


def _spread(of_rows: Ints, values: Ints | Floats, rows: Ints) -> Ints | Floats | None:
    """Values of some spans over the sorted `rows`; None where none of these has one."""
    at = np.searchsorted(rows, of_rows)
    mine = np.flatnonzero(at < len(rows))
    mine = mine[rows[at[mine]] == of_rows[mine]]
    if not len(mine):
        return None
    if values.dtype.kind == "f":
        out: Ints | Floats = np.full(len(rows), np.nan)
    else:
        out = np.full(len(rows), NO_NUMBER, np.int64)
    out[at[mine]] = values[mine]
    return out


def _launch_flow(trace: DeviceTrace, inside: Ints, first_id: int) -> Flow:
    """From each launch to the first thing that it made a device do."""
    flow = Flow(np.zeros(len(trace.start_ns), np.int64), np.zeros(len(trace.start_ns), np.int8))
    known = inside[trace.correlation[inside] >= 0]
    host = _first(trace, known[trace.category[known] == RUNTIME])
    device = _first(trace, known[np.isin(trace.category[known], DEVICE_WORK)])
    _, at_host, at_device = np.intersect1d(
        trace.correlation[host], trace.correlation[device], assume_unique=True, return_indices=True
    )
    here, there = host[at_host], device[at_device]
    ids = first_id + np.arange(len(here))
    in_time: Mask = trace.start_ns[here] <= trace.start_ns[there]  # a device's clock may be off
    flow.id[here], flow.id[there] = ids, ids
    flow.role[here] = np.where(in_time, STARTS, ENDS)
    flow.role[there] = np.where(in_time, ENDS, STARTS)
    return flow


def _first(trace: DeviceTrace, rows: Ints) -> Ints:
    """The earliest row of each correlation."""
    order = rows[np.lexsort((trace.start_ns[rows], trace.correlation[rows]))]
    _, first = np.unique(trace.correlation[order], return_index=True)
    return order[first]


