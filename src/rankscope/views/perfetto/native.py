"""Perfetto's own format: a stream of `TracePacket`s.

The field numbers are those of Perfetto's public `trace_packet.proto`, `track_descriptor.proto` and `track_event.proto`.
Slices are encoded thousands at a time: rows that have the same fields make one matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from rankscope.report.timeline.parts import ENDS, Column, Flow, Ints, Marks, Part, Readings, Slices, Track
from rankscope.views.perfetto import wire
from rankscope.views.perfetto.strings import ARGUMENTS, CATEGORIES, NAMES, VALUES, Strings

SEQUENCE: Final = wire.number(10, 1)
"""All packets belong to one sequence: numbers of texts hold in all of it."""
FIRST: Final = wire.number(13, 1)
"""Of the first packet: nothing was said before it."""
NEEDS_STRINGS: Final = wire.number(13, 2)
BEGIN, END, INSTANT, COUNTER = (wire.number(9, kind) for kind in (1, 2, 3, 4))
EXPLICIT_ORDER: Final = wire.number(11, 3)
BLOCK: Final = 16_384
"""Events that are encoded at once: a few MB of working memory."""


class NativeWriter:
    """Writes parts as they come."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._strings = Strings()
        self._packet(FIRST)

    def write(self, part: Part) -> None:
        """One part. Raises OSError."""
        if isinstance(part, Track):
            self._track(part)
        elif isinstance(part, Slices):
            self._slices(part)
        elif isinstance(part, Marks):
            self._marks(part)
        else:
            self._readings(part)

    def finish(self) -> None:
        """Nothing has to follow the last packet."""

    def _packet(self, fields: bytes) -> None:
        self._stream.write(wire.block(1, SEQUENCE + fields))

    def _track(self, track: Track) -> None:
        fields = wire.number(1, track.id) + wire.text(2, track.name)
        if track.parent:
            fields += wire.number(5, track.parent)
        if track.process is not None:
            labels = b"".join(wire.text(8, label) for label in track.process.labels)
            process = wire.number(1, track.process.pid) + wire.number(3, track.order) + wire.text(6, track.name)
            fields += wire.block(3, process + labels)
        if track.unit is not None:
            fields += wire.block(8, wire.text(6, track.unit))
        self._packet(wire.block(60, fields + EXPLICIT_ORDER + wire.number(12, track.order)))

    def _slices(self, slices: Slices) -> None:
        rows, is_end = in_order(slices.start_ns, slices.end_ns)
        for at in range(0, len(rows), BLOCK):
            mine, ends = rows[at : at + BLOCK], is_end[at : at + BLOCK]
            begins = mine[~ends]
            made = self._events(
                slices, begins, kind=BEGIN, time=slices.start_ns, places=np.flatnonzero(~ends), flows=slices.flows
            )
            parts = list(made)
            if ends.any():
                parts.append((np.flatnonzero(ends), _ends(slices.track, slices.end_ns[mine[ends]])))
            self._flush(len(mine), parts)

    def _marks(self, marks: Marks) -> None:
        for at in range(0, len(marks.time_ns), BLOCK):
            rows = np.arange(at, min(at + BLOCK, len(marks.time_ns)))
            self._flush(len(rows), list(self._events(marks, rows, kind=INSTANT, time=marks.time_ns, places=rows - at)))

    def _readings(self, readings: Readings) -> None:
        for at in range(0, len(readings.time_ns), BLOCK):
            time = readings.time_ns[at : at + BLOCK]
            event = wire.Rows(len(time))
            event.constant(COUNTER + wire.number(11, readings.track))
            event.fixed(44, readings.value[at : at + BLOCK].astype(np.float64))
            self._stream.write(_packets(time, event).tobytes())

    def _events(
        self, part: Slices | Marks, rows: Ints, *, kind: bytes, time: Ints, places: Ints, flows: tuple[Flow, ...] = ()
    ) -> Iterator[tuple[Ints, wire.Bytes]]:
        """(places, packets) of rows with the same fields. `places`: where among a block's events each row stands."""
        shape = np.zeros(len(rows), np.int64)
        for flow in flows:
            shape = shape * 3 + np.select([flow.role[rows] == 0, flow.role[rows] == ENDS], [0, 2], 1)
        for column in part.columns:
            shape = shape * 2 + (1 if column.there is None else column.there[rows])
        for value in np.unique(shape).tolist():
            chosen = np.flatnonzero(shape == value)
            mine = rows[chosen]
            event = wire.Rows(len(mine))
            event.constant(kind + wire.number(11, part.track))
            event.numbers(3, self._strings.numbers(CATEGORIES, part.names, part.category[mine]))
            event.numbers(10, self._strings.numbers(NAMES, part.names, part.name[mine]))
            for flow in flows:
                if flow.role[mine[0]]:
                    event.fixed(48 if flow.role[mine[0]] == ENDS else 47, flow.id[mine])
            for column in part.columns:
                if column.there is None or column.there[mine[0]]:
                    event.message(4, self._argument(column, mine))
            yield places[chosen], _packets(time[mine], event)

    def _argument(self, column: Column, rows: Ints) -> wire.Rows:
        out = wire.Rows(len(rows))
        out.constant(wire.number(1, self._strings.number(ARGUMENTS, column.name)))
        values = column.values[rows]
        if column.texts is not None:
            out.numbers(17, self._strings.numbers(VALUES, column.texts, values.astype(np.int64)))
        elif values.dtype.kind == "f":
            out.fixed(5, values.astype(np.float64))
        else:
            out.numbers(4, values.astype(np.int64))
        return out

    def _flush(self, count: int, parts: list[tuple[Ints, wire.Bytes]]) -> None:
        """Write a block of events in their order, the texts that they name before them."""
        new = self._strings.fetch_new()
        if new:
            self._packet(NEEDS_STRINGS + wire.block(12, new))
        if len(parts) == 1:
            self._stream.write(parts[0][1].tobytes())
            return
        sizes = np.zeros(count, np.int64)
        for places, packets in parts:
            sizes[places] = packets.shape[1]
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        for places, packets in parts:
            out[starts[places][:, None] + np.arange(packets.shape[1])] = packets
        self._stream.write(out.tobytes())


def in_order(start: Ints, end: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """(row, whether it is its end) of all begins and ends of sorted, nested slices, as they follow each other.

    At one moment what ends comes before what begins, the inner before the outer; a slice of no length ends at once.
    """
    rows = np.arange(len(start))
    empty = end == start
    among = np.concatenate([2 * rows, np.where(empty, 2 * rows + 1, -1 - rows)])
    order = np.lexsort((among, np.concatenate([start, end])))
    return order % max(1, len(start)), order >= len(start)


def _ends(track: int, time: Ints) -> wire.Bytes:
    event = wire.Rows(len(time))
    event.constant(END + wire.number(11, track))
    return _packets(time, event)


def _packets(time: Ints, event: wire.Rows) -> wire.Bytes:
    """Whole packets, each a field of the trace."""
    packet = wire.Rows(event.count)
    packet.numbers(8, time)
    packet.constant(SEQUENCE + NEEDS_STRINGS)
    packet.message(11, event)
    whole = wire.Rows(event.count)
    whole.message(1, packet)
    return whole.matrix()
