"""What had to be over before what, within a part of a trace: host calls, launches, streams and events."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.idle import waits_of
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import HOST, OPERATOR, RUNTIME, SYNC, DeviceTrace

RUNS, FOLLOWS, LAUNCH_DELAY, KERNEL_GAP, WAITS = range(5)
"""An edge along a span or between two within one; from one outermost operator to the next; from a launch to its kernel;
from a kernel to the next of its stream; to where another stream or the host waited for a kernel."""

BLOCKING: Final = frozenset(
    (
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaEventQuery", "cudaMemcpy",
        "cudaMemcpyAsync", "hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize", "hipMemcpy",
        "hipMemcpyAsync", "hipMemcpyWithStream",
    )
)  # fmt: skip
"""Their time is that of what they wait for, and stands on the path there."""
_RECORDS: Final = ("cudaEventRecord", "hipEventRecord", "cudaEventRecordWithFlags")


@dataclass(slots=True)
class Dependencies:
    """A graph of points in time: point 2 i is the start of `spans[i]`, 2 i + 1 its end. Edges lead forward in time."""

    spans: NDArray[np.int64]
    time: NDArray[np.int64]
    """[point] ns"""
    tail: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    weight: list[int] = field(default_factory=list)
    """[edge] ns; 0 where the time between is nobody's."""
    kind: list[int] = field(default_factory=list)

    def add(self, tail: int, head: int, kind: int, free: bool = False) -> None:
        self.tail.append(tail)
        self.head.append(head)
        timed = not free and kind not in (FOLLOWS, WAITS)
        self.weight.append(max(0, int(self.time[head] - self.time[tail])) if timed else 0)
        self.kind.append(kind)


def dependencies_of(trace: DeviceTrace, work: Work, launch: NDArray[np.int64], first: int, last: int) -> Dependencies:
    """Of the calls that begin in a window, and of what they launched."""
    category, start, length = trace.category, trace.start_ns, trace.duration_ns
    on_host = np.isin(category, (OPERATOR, RUNTIME)) & (start >= first) & (start <= last) & (length > 0)
    host = np.flatnonzero(on_host)
    called = (launch >= 0) & on_host[launch]
    pieces = np.flatnonzero(called)
    spans = np.concatenate((host, work.span[pieces]))
    time = np.empty(2 * len(spans), np.int64)
    time[0::2] = start[spans]
    time[1::2] = start[spans] + length[spans]
    found = Dependencies(spans, time)
    _add_host(trace, found, len(host))
    _Device(trace, work, launch, found, pieces).add()
    return found


def _add_host(trace: DeviceTrace, found: Dependencies, count: int) -> None:
    """Along each thread: into a call, through those within it, out of it; free from one outermost call to the next."""
    blocking = {at for at, name in enumerate(trace.names) if name in BLOCKING}
    lanes = trace.lane[found.spans[:count]]
    starts, ends = found.time[0 : 2 * count : 2], found.time[1 : 2 * count : 2]
    names = trace.name[found.spans].tolist()
    for lane in np.unique(lanes).tolist():
        rows = np.flatnonzero(lanes == lane)
        rows = rows[np.lexsort((-ends[rows], starts[rows]))]
        stack: list[int] = []
        at = outermost = -1

        def leave(at: int, row: int) -> int:
            found.add(at, 2 * row + 1, RUNS, free=names[row] in blocking)
            return 2 * row + 1

        for row, begin in zip(rows.tolist(), starts[rows].tolist(), strict=True):
            while stack and ends[stack[-1]] <= begin:
                at = leave(at, stack.pop())
                if not stack:
                    outermost = at
            if stack:
                found.add(at, 2 * row, RUNS)
            elif outermost >= 0:
                found.add(outermost, 2 * row, FOLLOWS)
            stack.append(row)
            at = 2 * row
        while stack:
            at = leave(at, stack.pop())


class _Device:
    """Edges of the device's side, in the order in which things happened there."""

    def __init__(
        self, trace: DeviceTrace, work: Work, launch: NDArray[np.int64], found: Dependencies, pieces: NDArray[np.int64]
    ) -> None:
        self.trace, self.work, self.launch, self.found = trace, work, launch, found
        self.pieces = pieces
        self.row = {span: row for row, span in enumerate(found.spans.tolist())}
        self.stream = {
            number: (lane.device, lane.name) for number, lane in enumerate(trace.lanes) if lane.device != HOST
        }
        self.last: dict[tuple[int, str], int] = {}
        """The end of the last piece on each stream."""
        self.after: defaultdict[int, list[int]] = defaultdict(list)
        """Piece -> ends that it waits for."""
        self.calls: dict[int, int] = {}
        self.busy_until = _busy_until(trace, work)

    def add(self) -> None:
        syncs = np.flatnonzero(self.trace.category == SYNC)
        self.calls = self._calls(np.concatenate((self.trace.correlation[syncs], self.trace.sync_record)))
        syncs = np.array([s for s in syncs.tolist() if self._call(s) in self.row], np.int64)
        order = [(int(self.work.start[piece]), 1, int(piece)) for piece in self.pieces.tolist()]
        order += [(int(self.trace.start_ns[s] + self.trace.duration_ns[s]), 0, int(s)) for s in syncs.tolist()]
        recorded = {int(s): at for at, s in enumerate(self.trace.sync_span.tolist())}
        if not len(syncs):  # most traces: what the host's calls waited for has to be guessed
            waits = [int(s) for s in waits_of(self.trace).tolist() if int(s) in self.row]
            order += [(int(self.trace.start_ns[s] + self.trace.duration_ns[s]), 2, s) for s in waits]
        for _, what, item in sorted(order):
            if what == 1:
                self._piece(item)
            elif what == 0:
                self._sync(item, recorded.get(item, -1))
            else:
                self._host_waits(item, list(self.last.values()))

    def _piece(self, piece: int) -> None:
        found, span = self.found, int(self.work.span[piece])
        row = self.row[span]
        found.add(2 * row, 2 * row + 1, RUNS)
        stream = self.stream.get(int(self.trace.lane[span]), (0, ""))
        called = 2 * self.row[int(self.launch[piece])]
        ends = self.after.pop(span, [])
        for end in ends:
            found.add(end, 2 * row, WAITS)
        latest_wait = max((int(found.time[end]) for end in ends), default=-1)
        before = self.last.get(stream)
        launched = int(found.time[called])
        idle = self.busy_until[piece] if before is None else found.time[before]
        if idle < launched and latest_wait < launched:
            found.add(called, 2 * row, LAUNCH_DELAY)
        elif before is not None and latest_wait < found.time[before]:
            found.add(before, 2 * row, KERNEL_GAP)
        self.last[stream] = 2 * row + 1

    def _sync(self, span: int, at: int) -> None:
        """What the device itself recorded of a wait."""
        name, trace = self.trace.names[self.trace.name[span]], self.trace
        call = self._call(span)
        stream = self.stream.get(int(trace.lane[span]), (0, ""))
        if name == "Stream Sync":
            self._host_waits(call, [self.last[stream]] if stream in self.last else [])
        elif name == "Context Sync":
            self._host_waits(call, list(self.last.values()))
        elif at >= 0 and name in ("Event Sync", "Stream Wait Event"):
            source = self._before_record(int(trace.sync_record[at]), int(trace.sync_stream[at]))
            if source < 0:
                return
            if name == "Event Sync":
                self._host_waits(call, [2 * self.row[source] + 1])
            else:
                target = self._after_call(call, stream)
                if target >= 0:
                    self.after[target] = [2 * self.row[source] + 1]

    def _host_waits(self, call: int, ends: list[int]) -> None:
        row = self.row.get(call)
        if row is None:
            return
        for end in ends:
            if self.found.time[end] <= self.found.time[2 * row + 1]:
                self.found.add(end, 2 * row + 1, WAITS)

    def _streams(self, pieces: NDArray[np.int64]) -> list[tuple[int, str]]:
        return [self.stream.get(lane, (0, "")) for lane in self.trace.lane[self.work.span[pieces]].tolist()]

    def _call(self, span: int) -> int:
        """The host's call that a record of the device belongs to."""
        return self.calls.get(int(self.trace.correlation[span]), -1)

    def _calls(self, numbers: NDArray[np.int64]) -> dict[int, int]:
        """The first call of the host with each of these correlations."""
        rows = np.flatnonzero((self.trace.category == RUNTIME) & np.isin(self.trace.correlation, numbers[numbers >= 0]))
        rows = rows[np.argsort(-self.trace.start_ns[rows], kind="stable")]
        return dict(zip(self.trace.correlation[rows].tolist(), rows.tolist(), strict=True))

    def _before_record(self, correlation: int, stream: int) -> int:
        """The span of the last piece that had been launched into a stream when an event was recorded in it; -1."""
        trace = self.trace
        record = self.calls.get(correlation, -1)
        if record < 0 or trace.names[trace.name[record]] not in _RECORDS:
            return -1
        known = self.pieces[trace.start_ns[self.launch[self.pieces]] < trace.start_ns[record]]
        known = known[[name == str(stream) for _, name in self._streams(known)]]
        if not len(known):
            return -1
        return int(self.work.span[known[np.argmax(trace.start_ns[self.launch[known]])]])

    def _after_call(self, call: int, stream: tuple[int, str]) -> int:
        """The span of the next piece that the same thread launches into a stream after a call; -1."""
        if call < 0:
            return -1
        trace = self.trace
        by = self.launch[self.pieces]
        later = (trace.start_ns[by] > trace.start_ns[call]) & (trace.lane[by] == trace.lane[call])
        known = self.pieces[later]
        known = known[[one == stream for one in self._streams(known)]]
        if not len(known):
            return -1
        return int(self.work.span[known[np.argmin(trace.start_ns[self.launch[known]])]])


def _busy_until(trace: DeviceTrace, work: Work) -> NDArray[np.int64]:
    """[piece] the end of the work before it on its stream, in the window or before it; -1: none."""
    lanes = trace.lane[work.span]
    found = np.full(len(lanes), -1, np.int64)
    for lane in np.unique(lanes).tolist():
        pieces = np.flatnonzero(lanes == lane)
        found[pieces[1:]] = np.maximum.accumulate(work.end[pieces])[:-1]
    return found
