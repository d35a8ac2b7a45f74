"""Device traces of other tools as one timeline."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from rankscope.analysis.imported.device_traces.matching import Matched, matched
from rankscope.base.finding import Finding
from rankscope.base.guard import swallow
from rankscope.records.imported.device_trace import DeviceTrace
from rankscope.report.imported import Imported, imported_report
from rankscope.report.report import InputFile
from rankscope.report.timeline.headline import headline
from rankscope.report.timeline.nesting import drawn
from rankscope.report.timeline.parts import Flow, Ints, Part, Process, Readings, Track
from rankscope.report.timeline.reading import ReadTrace
from rankscope.report.timeline.run_flows import flows_of
from rankscope.report.timeline.trace_clock import TraceClock, trace_clock
from rankscope.report.timeline.trace_lanes import memory_readings, trace_lanes
from rankscope.report.timeline.window import Steps, Window, steps_of

LAUNCHES = 1 << 40
"""Ids of flows from launches begin here, each trace's own so far apart."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces that are drawn together, in the order of ranks."""

    traces: tuple[ReadTrace, ...]
    groups: tuple[Matched, ...]
    clock: TraceClock
    steps: Steps
    whole: tuple[int, int]


def together(traces: Sequence[ReadTrace]) -> Traces:
    """All traces on one clock."""
    ordered = tuple(sorted(traces, key=lambda one: (one.rank is None, one.rank or 0, one.file)))
    digests = [one.digest for one in ordered]
    try:
        groups = tuple(matched(digests)) if len(digests) > 1 else ()
    except Exception as error:  # noqa: BLE001  without their flows the traces are worth seeing as well
        swallow("matching the collectives of traces", error)
        groups = ()
    clock = trace_clock(digests, groups)
    steps = steps_of(
        [
            (one.step_number, one.step_begin_ns - offset, one.step_end_ns - offset)
            for one, offset in zip(ordered, clock.offset_ns, strict=True)
        ]
    )
    begin = min(one.first_ns - offset for one, offset in zip(digests, clock.offset_ns, strict=True))
    end = max(one.last_ns - offset for one, offset in zip(digests, clock.offset_ns, strict=True))
    return Traces(ordered, groups, clock, steps, (begin, end))


def trace_starts(traces: Traces, chosen: Callable[[int], bool]) -> tuple[Ints, Ints]:
    """(starts of some spans of the chosen ranks, how many spans each of them stands for)."""
    mine = [
        (one.starts_ns - offset, np.full(len(one.starts_ns), one.weight))
        for one, offset in zip(traces.traces, traces.clock.offset_ns, strict=True)
        if one.rank is None or chosen(one.rank)
    ]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(a for a, _ in mine)]), np.concatenate([none, *(b for _, b in mine)])


def trace_findings(traces: Traces) -> tuple[Finding, ...]:
    """What the traces say together, as in their report."""
    inputs = [
        Imported(InputFile(one.file, "trace", used=True), (one.kept,)) for one in traces.traces if one.kept is not None
    ]
    return imported_report("", inputs, None).findings


def trace_parts(traces: Traces, chosen: Callable[[int], bool], window: Window) -> Iterator[Part]:
    """Findings and clock, then the chosen ranks one after the other, each in memory only while it is drawn.

    Traces whose rank is not known are always drawn. Times count from the begin of the first trace.
    """
    origin = traces.whole[0]
    ids = count(1)
    yield from headline(
        trace_findings(traces), traces.clock.clock, steps=traces.steps, window=window, origin_ns=origin, ids=ids
    )
    drawn_too = [at for at, one in enumerate(traces.traces) if one.rank is None or chosen(one.rank)]
    joined = _collective_flows(traces, drawn_too, window)
    for order, at in enumerate(drawn_too, 1):
        one, offset = traces.traces[at], traces.clock.offset_ns[at]
        trace = one.spans()
        head = _head(traces, at, next(ids), order, trace)
        yield head
        below = count()
        flow = _over_spans(trace, *joined[at])
        for name, batch in trace_lanes(trace, offset, window, flow, LAUNCHES * order):
            if len(batch):
                track = Track(next(ids), name, head.id, next(below))
                yield from drawn(track, batch.slices(track.id, origin), ids)
        counters = Track(next(ids), "counters", head.id, next(below))
        for number, (name, unit, time, value) in enumerate(memory_readings(trace, offset, window)):
            if not number:
                yield counters
            track = Track(next(ids), name, counters.id, number, unit=unit)
            yield track
            yield Readings(track.id, time - origin, value)


def _head(traces: Traces, at: int, id: int, order: int, trace: DeviceTrace) -> Track:
    one = traces.traces[at]
    if one.rank is None:
        name = Path(one.file).name
    else:
        ranks = [other.rank for other in traces.traces if other.rank is not None]
        name = f"rank {one.rank:0{len(str(max(ranks)))}}"
        if Counted(ranks)[one.rank] > 1:
            name += f" ({Path(one.file).name})"
    labels = (*dict.fromkeys(trace.device_names), *(f"{key} {value}" for key, value in trace.versions))
    return Track(id, name, 0, order, Process(at + 1, tuple(label for label in labels if label)))


def _collective_flows(traces: Traces, drawn_too: Sequence[int], window: Window) -> dict[int, tuple[Ints, Flow]]:
    """For each trace (begins of its matched collectives, as the file has them, and the flow over these)."""
    begins: dict[int, list[Ints]] = {at: [] for at in drawn_too}
    calls: dict[int, list[Ints]] = {at: [] for at in drawn_too}
    first = 0
    for group in traces.groups:
        numbers = first + np.arange(group.start.shape[1])
        first += len(numbers)
        for row, at in enumerate(group.members):
            if at in begins:
                begins[at].append(group.start[row])
                calls[at].append(numbers)
    none = np.empty(0, np.int64)
    start = [np.concatenate([none, *begins[at]]) for at in drawn_too]
    call = [np.concatenate([none, *calls[at]]) for at in drawn_too]
    common = [one - traces.clock.offset_ns[at] for at, one in zip(drawn_too, start, strict=True)]
    inside = [np.asarray((one >= window.begin_ns) & (one <= window.end_ns)) for one in common]
    flows = flows_of(call, common, inside)
    return {at: (begin, flow) for at, begin, flow in zip(drawn_too, start, flows, strict=True)}


def _over_spans(trace: DeviceTrace, begins: Ints, flow: Flow) -> Flow:
    """A flow over collectives as one over all spans."""
    spans = trace.collective_span.astype(np.int64)
    if not len(spans) or not np.isin(begins, trace.start_ns[spans]).all():
        spans = np.arange(len(trace.start_ns))  # gloo's are annotations of the host
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    made = Flow(np.zeros(len(trace.start_ns), np.int64), np.zeros(len(trace.start_ns), np.int8))
    if len(spans):
        at = np.minimum(np.searchsorted(trace.start_ns[spans], begins), len(spans) - 1)
        good = trace.start_ns[spans[at]] == begins
        made.id[spans[at[good]]] = flow.id[good]
        made.role[spans[at[good]]] = flow.role[good]
    return made
