"""Chrome's JSON format."""

import io
import json

import numpy as np

from rankscope.report.timeline.parts import ENDS, STARTS, Column, Flow, Marks, Process, Readings, Slices, Track
from rankscope.views.perfetto import chrome
from rankscope.views.perfetto.chrome import BY_ITSELF, ChromeWriter

TRACKS = (
    Track(1, "Rankscope", 0, 0), Track(2, "findings", 1, 0), Track(3, "rank 0", 0, 1, Process(4711, ("node0",))),
    Track(4, "steps", 3, 0), Track(5, "cpu use", 3, 1, unit="%"),
)  # fmt: skip


def events(*parts):
    stream = io.BytesIO()
    writer = ChromeWriter(stream)
    for part in parts:
        writer.write(part)
    writer.finish()
    return json.loads(stream.getvalue())["traceEvents"]


def steps(count, **fields):
    start = np.arange(count, dtype=np.int64) * 10_000
    zero = np.zeros(count, np.int64)
    return Slices(4, start, start + 2_500, zero, zero + 1, ('step "1"', "step"), **fields)


def test_tracks_are_processes_and_threads():
    named = [(e["pid"], e["tid"], e["args"]["name"]) for e in events(*TRACKS) if e["name"].endswith("_name")]

    assert named == [
        (BY_ITSELF + 1, 0, "Rankscope"), (BY_ITSELF + 1, 2, "findings"), (4711, 0, "rank 0"), (4711, 4, "steps"),
    ]  # fmt: skip


def test_slices_have_times_in_us_and_their_own_arguments():
    columns = (
        Column("loss", np.array([0.5, 0.0]), None, np.array([True, False])),
        Column("place", np.array([0, 0]), ("a\nb",)),
    )

    found = [e for e in events(*TRACKS, steps(2, columns=columns)) if e["ph"] == "X"]

    common = {"ph": "X", "name": 'step "1"', "cat": "step", "dur": 2.5, "pid": 4711, "tid": 4}
    assert found == [
        {**common, "ts": 0, "args": {"loss": 0.5, "place": "a\nb"}}, {**common, "ts": 10, "args": {"place": "a\nb"}},
    ]  # fmt: skip


def test_flows_begin_and_end_inside_their_slices():
    flow = Flow(np.array([3, 3]), np.array([STARTS, ENDS], np.int8))

    found = [e for e in events(*TRACKS, steps(2, flows=(flow,))) if e["ph"] in "stf"]

    assert [(e["ph"], e["id"], e["ts"], e["bp"]) for e in found] == [("s", 3, 0, "e"), ("f", 3, 10, "e")]


def test_marks_and_counters():
    marks = Marks(4, np.array([1_500]), np.array([0]), np.array([1]), ("caught", "event"))

    found = events(*TRACKS, marks, Readings(5, np.array([0]), np.array([97.5])))[-2:]

    assert [(e["ph"], e["name"], e["ts"], e["pid"]) for e in found] == [
        ("i", "caught", 1.5, 4711), ("C", "cpu use", 0, 4711),
    ]  # fmt: skip
    assert found[1]["args"] == {"value": 97.5}


def test_many_slices_come_in_blocks(monkeypatch):
    monkeypatch.setattr(chrome, "BLOCK", 3)

    found = [e["ts"] for e in events(*TRACKS, steps(10)) if e["ph"] == "X"]

    assert found == [at * 10 for at in range(10)]


def test_nothing_is_valid_json():
    assert events() == []
