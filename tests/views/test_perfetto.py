"""The native format, read back by a reader of our own that shares nothing with the writer."""

import importlib.util
import io
import itertools
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from rankscope.report.timeline.nesting import drawn
from rankscope.report.timeline.parts import (
    ENDS,
    GOES_ON,
    STARTS,
    Column,
    Flow,
    Marks,
    Process,
    Readings,
    Slices,
    Track,
)
from rankscope.views.perfetto import native, wire
from rankscope.views.perfetto.native import NativeWriter, in_order

HEAD = Track(1, "rank 0", 0, 1, Process(4711, ("node0", "gloo")))
LANE = Track(2, "steps", 1, 0)


@pytest.fixture(scope="module")
def reader():
    spec = importlib.util.spec_from_file_location("perfetto_reader", Path(__file__).with_name("perfetto_reader.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["perfetto_reader"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def decoded(reader):
    return lambda *parts: reader.decode(encoded(*parts))


def encoded(*parts):
    stream = io.BytesIO()
    writer = NativeWriter(stream)
    for part in parts:
        writer.write(part)
    writer.finish()
    return stream.getvalue()


def slices(*spans, names=("a", "work"), name=0, columns=(), flows=(), track=2):
    start, end = (np.array([span[i] for span in spans], np.int64) for i in range(2))
    name = np.full(len(spans), name) if isinstance(name, int) else np.array(name)
    return Slices(track, start, end, name, np.full(len(spans), len(names) - 1), names, columns, flows)


def times(found):
    return [(s.start, s.end, s.depth) for s in sorted(found.slices, key=lambda s: (s.start, s.depth))]


def test_tracks_make_a_tree(decoded):
    found = decoded(HEAD, LANE, Track(3, "cpu use", 1, 4, unit="%"), Track(9, "Rankscope", 0, 0))

    assert found.tracks == {
        1: {"name": "rank 0", "parent": 0, "order": 1, "pid": 4711, "process_name": "rank 0",
            "labels": ["node0", "gloo"], "unit": None},
        2: {"name": "steps", "parent": 1, "order": 0, "pid": None, "unit": None},
        3: {"name": "cpu use", "parent": 1, "order": 4, "pid": None, "unit": "%"},
        9: {"name": "Rankscope", "parent": 0, "order": 0, "pid": None, "unit": None},
    }  # fmt: skip


def test_slices_nest_as_they_lie(decoded):
    found = decoded(HEAD, LANE, slices((0, 100), (0, 40), (10, 40), (40, 60), (100, 130)))

    assert times(found) == [(0, 100, 0), (0, 40, 1), (10, 40, 2), (40, 60, 1), (100, 130, 0)]
    assert found.disorder == 0


def test_slices_of_no_length_stay_where_they_are(decoded):
    found = decoded(HEAD, LANE, slices((0, 5), (0, 0), (5, 5), (5, 5), (5, 9), (9, 9)))

    assert sorted(times(found)) == [(0, 0, 1), (0, 5, 0), (5, 5, 0), (5, 5, 0), (5, 9, 0), (9, 9, 0)]


def test_ends_come_before_begins_at_one_moment():
    row, is_end = in_order(np.array([0, 0, 7]), np.array([7, 7, 9]))

    assert list(zip(row.tolist(), is_end.tolist(), strict=True)) == [
        (0, False), (1, False), (1, True), (0, True), (2, False), (2, True),
    ]  # fmt: skip


def test_more_events_than_a_block_keep_their_order(decoded, monkeypatch):
    monkeypatch.setattr(native, "BLOCK", 7)
    spans = [(0, 1000), *((at * 10, at * 10 + 10) for at in range(100))]

    found = decoded(HEAD, LANE, slices(*spans))

    assert times(found) == [(0, 1000, 0), *((at * 10, at * 10 + 10, 1) for at in range(100))]
    assert found.disorder == 0


def test_arguments_of_every_kind(decoded):
    columns = (
        Column("count", np.array([3, -4, 1 << 62])),
        Column("share", np.array([0.5, 1e300, 0.0]), None, np.array([True, True, False])),
        Column("text", np.array([1, 0, 0]), ("one", "żółć \udce9"), np.array([True, False, True])),
    )

    found = decoded(HEAD, LANE, slices((0, 1), (2, 3), (4, 5), columns=columns))

    assert [s.args for s in found.slices] == [
        {"count": 3, "share": 0.5, "text": "żółć ?"},
        {"count": -4, "share": 1e300},
        {"count": 1 << 62, "text": "one"},
    ]


def test_names_and_categories(decoded):
    found = decoded(HEAD, LANE, slices((0, 1), (2, 3), names=("backward", "forward", "phase"), name=[1, 0]))

    assert [(s.name, s.category) for s in found.slices] == [("forward", "phase"), ("backward", "phase")]


def test_a_text_is_written_once(decoded):
    data = encoded(HEAD, LANE, slices((0, 1), (2, 3), names=("all_reduce",)), slices((4, 5), names=("all_reduce",)))

    assert data.count(b"all_reduce") == 2  # as a name, and as a category


def test_a_flow_has_a_begin_and_an_end(decoded):
    flow = Flow(np.array([7, 7, 7, 0]), np.array([STARTS, GOES_ON, ENDS, 0], np.int8))

    found = decoded(HEAD, LANE, slices((0, 1), (2, 3), (4, 5), (6, 7), flows=(flow,)))

    assert [s.flows for s in found.slices] == [((7, False),), ((7, False),), ((7, True),), ()]


def test_two_flows_of_one_slice(decoded):
    flows = (
        Flow(np.array([1, 0]), np.array([STARTS, 0], np.int8)),
        Flow(np.array([2, 2]), np.array([ENDS, STARTS], np.int8)),
    )

    found = decoded(HEAD, LANE, slices((0, 1), (2, 3), flows=flows))

    assert [s.flows for s in found.slices] == [((1, False), (2, True)), ((2, False),)]


def test_marks_and_readings(decoded):
    marks = Marks(2, np.array([5, 6]), np.array([0, 0]), np.array([1, 1]), ("caught", "event"))

    readings = Readings(3, np.array([1, 9]), np.array([2.5, -1]))

    found = decoded(HEAD, LANE, Track(3, "loss", 1, 1, unit=""), marks, readings)

    assert [(m.start, m.name, m.category) for m in found.marks] == [(5, "caught", "event"), (6, "caught", "event")]
    assert found.readings == [(3, 1, 2.5), (3, 9, -1.0)]


def test_an_empty_batch_writes_nothing(decoded):
    assert decoded(HEAD, LANE, slices()).slices == []


class TestLanes:
    def drawn(self, *spans):
        parts = list(drawn(LANE, slices(*spans), itertools.count(10)))
        return [
            (part.id, list(zip(batch.start_ns.tolist(), batch.end_ns.tolist(), strict=True)))
            for part, batch in zip(parts[::2], parts[1::2], strict=True)
        ]

    def test_what_nests_stays_on_one_lane_in_any_order(self):
        assert self.drawn((10, 40), (0, 100), (40, 100), (0, 5)) == [(2, [(0, 100), (0, 5), (10, 40), (40, 100)])]

    def test_what_overlaps_goes_beside_it(self):
        assert self.drawn((0, 10), (5, 15), (10, 20)) == [(2, [(0, 10), (10, 20)]), (10, [(5, 15)])]

    def test_an_end_before_the_begin_is_no_length(self):
        assert self.drawn((10, 3)) == [(2, [(10, 10)])]

    def test_there_are_no_more_lanes_than_can_be_looked_at(self):
        found = self.drawn(*((at, 1000 + at) for at in range(100)))

        assert len(found) == 64
        assert sum(len(spans) for _, spans in found) == 100
        for _, spans in found:
            assert all(c < d <= b for (a, b), (c, d) in itertools.combinations(spans, 2) if c < b)


def test_numbers_at_their_limits():
    rows = wire.Rows(3)
    rows.numbers(1, np.array([0, 127, -1]))

    assert [bytes(row) for row in rows.matrix()] == [
        b"\x08" + bytes([0x80] * 9 + [0]),
        b"\x08" + bytes([0xFF] + [0x80] * 8 + [0]),
        b"\x08" + bytes([0xFF] * 9 + [1]),
    ]


def test_memory_does_not_grow_with_the_number_of_slices():
    class Nowhere(io.RawIOBase):
        def write(self, data):
            return len(data)

    def peak(batches):
        start = np.arange(20_000, dtype=np.int64) * 10
        names = np.zeros(20_000, np.int64)
        tracemalloc.start()
        writer = NativeWriter(Nowhere())
        writer.write(HEAD)
        writer.write(LANE)
        for at in range(batches):
            shifted = start + at * 200_000
            writer.write(Slices(2, shifted, shifted + 5, names, names, ("kernel",)))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(8) < 1.2 * peak(2)


def test_perfettos_own_definitions_read_it():
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="the package `perfetto` is not installed"
    )
    columns = (Column("n", np.array([1, 2])), Column("text", np.array([0, 0]), ("x",)))
    flow = Flow(np.array([7, 7]), np.array([STARTS, ENDS], np.int8))
    trace = protos.Trace()

    trace.ParseFromString(encoded(HEAD, LANE, slices((3, 9), (10, 11), columns=columns, flows=(flow,))))

    assert [p.timestamp for p in trace.packet if p.HasField("track_event")] == [3, 9, 10, 11]
    assert trace.packet[1].track_descriptor.process.process_labels == ["node0", "gloo"]
    event = next(p.track_event for p in trace.packet if p.HasField("track_event"))
    assert (event.track_uuid, event.flow_ids[0], event.debug_annotations[0].int_value) == (2, 7, 1)
