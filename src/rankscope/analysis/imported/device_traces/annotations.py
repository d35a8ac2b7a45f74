"""Ranges that the user or a library marked, and what the device did in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import ANNOTATION, DEVICE_ANNOTATION, DeviceTrace


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """All ranges of one name on one side."""

    name: str
    on_device: bool
    calls: int
    total_ns: int
    pieces: int
    """Kernels, copies and fills within, of those on its stream that no range within it has; 0 on the host's side."""


def annotation_table(trace: DeviceTrace, work: Work) -> list[AnnotationRow]:
    """Those with most time first, the device's before the host's."""
    inner = innermost(trace, work)
    rows = []
    for category, on_device in ((DEVICE_ANNOTATION, True), (ANNOTATION, False)):
        spans = np.flatnonzero(trace.category == category)
        pieces = np.bincount(trace.name[inner[inner >= 0]], minlength=len(trace.names)) if on_device else None
        for name in np.unique(trace.name[spans]).tolist():
            same = spans[trace.name[spans] == name]
            total = int(trace.duration_ns[same].sum())
            count = int(pieces[name]) if pieces is not None else 0
            rows.append(AnnotationRow(trace.names[name], on_device, len(same), total, count))
    return sorted(rows, key=lambda row: (not row.on_device, -row.total_ns, row.name))


def innermost(trace: DeviceTrace, work: Work) -> NDArray[np.int64]:
    """[piece] the shortest range of its stream that it overlaps; -1: none."""
    found = np.full(len(work.span), -1, np.int64)
    marks = np.flatnonzero(trace.category == DEVICE_ANNOTATION)
    marks = marks[np.argsort(-trace.duration_ns[marks], kind="stable")]
    streams: dict[tuple[int, str], list[int]] = {}
    for number, stream in enumerate(trace.lanes):
        streams.setdefault((stream.device, stream.name), []).append(number)
    piece_lane = trace.lane[work.span]
    by_lane: dict[int, NDArray[np.int64]] = {}
    for mark in marks.tolist():
        lane = int(trace.lane[mark])
        pieces = by_lane.get(lane)
        if pieces is None:
            key = (trace.lanes[lane].device, trace.lanes[lane].name)
            pieces = by_lane[lane] = np.flatnonzero(np.isin(piece_lane, streams[key]))
        first, last = int(trace.start_ns[mark]), int(trace.start_ns[mark] + trace.duration_ns[mark])
        # Pieces of one stream follow each other, so their ends are in order as well.
        low = int(np.searchsorted(work.end[pieces], first, side="right"))
        high = int(np.searchsorted(work.start[pieces], last, side="left"))
        found[pieces[low:high]] = mark
    return found
