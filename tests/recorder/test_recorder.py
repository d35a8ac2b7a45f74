"""The recorder against real rings: what it keeps, what it costs to lose it, what it says of processes that ended."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rankscope.capture.ring import Ring
from rankscope.recorder import counters
from rankscope.recorder import recorder as module
from rankscope.recorder.recorder import Recorder
from rankscope.records import ring_layout
from rankscope.records.payload import NAME, PROCESS
from rankscope.records.process import Process
from rankscope.records.slot import ROW_FIELDS
from rankscope.wire.spool import Spool

SECOND = 1_000_000_000


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def rows_of(spool, kind):
    frames = [spool.load(number) for number, _ in spool.pending()]
    rows = [np.frombuffer(f.rows, np.dtype(list(ROW_FIELDS))) for f in frames]
    everything = np.concatenate(rows) if rows else np.empty(0, np.dtype(list(ROW_FIELDS)))
    return everything[everything["kind"] == kind]


@pytest.fixture
def rings(tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir()
    return folder


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


def ring_of(folder, name="1"):
    ring = Ring(folder / f"{os.getpid()}-{name}.ring")
    ring.payload(PROCESS, 0, Process(os.getpid()).encode())
    return ring


def test_every_record_comes_out_once_and_in_order(rings, spool):
    put = ring_of(rings).lane()
    recorder = Recorder([rings], spool)
    for i in range(1000):
        put(i, 0, 1, 0, i, 0, 0, 0)
        if i % 100 == 0:
            recorder.tick()
    recorder.tick()
    recorder.flush()

    assert rows_of(spool, 1)["step"].tolist() == list(range(1000))
    assert len(rows_of(spool, 46)) == 0


def test_a_frame_is_written_after_ten_seconds_or_when_a_ring_fills(rings, spool):
    clock = Clock()
    put = ring_of(rings).lane()
    recorder = Recorder([rings], spool, clock=clock)
    recorder.tick()
    before = len(list(spool.pending()))
    put(0, 0, 1, 0, 0, 0, 0, 0)
    clock.now += 9 * SECOND
    recorder.tick()
    early = len(rows_of(spool, 1))
    clock.now += 2 * SECOND
    recorder.tick()
    in_time = len(rows_of(spool, 1))
    for i in range(module.FLUSH_ROWS):
        put(i, 0, 1, 0, i, 0, 0, 0)
    recorder.tick()

    assert (early, in_time, len(rows_of(spool, 1))) == (0, 1, 1 + module.FLUSH_ROWS)
    assert before <= 1


def test_what_a_killed_recorder_held_is_still_in_the_ring(rings, spool):
    put = ring_of(rings).lane()
    first = Recorder([rings], spool)
    first.tick()
    first.flush()
    for i in range(500):
        put(i, 0, 1, 0, i, 0, 0, 0)
    first.tick()
    del first  # killed before it flushed

    second = Recorder([rings], spool)
    second.tick()
    second.flush()

    assert rows_of(spool, 1)["step"].tolist() == list(range(500))


def test_an_overrun_is_counted(rings, spool):
    put = ring_of(rings).lane()
    recorder = Recorder([rings], spool)
    recorder.tick()
    total = 2 * ring_layout.RANK_SIZES.first_lane_slots
    for i in range(total):
        put(i, 0, 1, 0, i, 0, 0, 0)
    recorder.tick()
    recorder.flush()

    kept = len(rows_of(spool, 1))
    assert rows_of(spool, 46)["a"].sum() == total - kept > 0


def test_a_ring_that_comes_late_is_found_in_a_folder_that_had_settled(rings, spool, monkeypatch):
    monkeypatch.setattr(module, "SETTLED_NS", -(10**18))
    recorder = Recorder([rings], spool)
    ring_of(rings, "1")
    recorder.tick()
    os.utime(rings, ns=(1, 1))
    recorder.tick()
    recorder.tick()
    ring_of(rings, "2")
    recorder.tick()

    assert recorder.seen == 2


def test_a_ring_without_its_header_is_tried_again(rings, spool):
    recorder = Recorder([rings], spool)
    ring = ring_of(rings, "1")
    magic = ring._map[0:8]
    ring._map[0:8] = b"\0" * 8
    recorder.tick()
    unseen = recorder.seen
    ring._map[0:8] = magic
    recorder.tick()

    assert (unseen, recorder.seen) == (0, 1)


def test_the_end_of_a_process_is_noted_with_its_last_records(rings, spool):
    program = (
        "import sys, os; from pathlib import Path; from rankscope.capture.ring import Ring\n"
        f"put = Ring(Path({str(rings)!r}) / f'{{os.getpid()}}-1.ring').lane()\n"
        "for i in range(10): put(i, 0, 1, 0, i, 0, 0, 0)\n"
        "os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        child.wait()
        recorder = Recorder([rings], spool)
        recorder.tick()
        recorder.flush()

    (end,) = rows_of(spool, 44)
    assert (int(end["a"]), int(end["b"])) == (child.pid, 0)
    assert rows_of(spool, 1)["step"].tolist() == list(range(10))
    assert recorder.alive == 0


def test_names_travel_with_the_records(rings, spool):
    ring = ring_of(rings)
    ring.payload(NAME, 7, "forward")
    recorder = Recorder([rings], spool)
    recorder.tick()
    recorder.flush()

    texts = [(p.id, p.text) for n, _ in spool.pending() for p in spool.load(n).payloads if p.kind == NAME]
    assert (7, "forward") in texts


def test_a_kernel_without_scheduler_statistics_still_tells_the_rest(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(counters, "_schedstat", missing)

    states = {name for name, _, _ in counters.process_states(os.getpid())}
    sums = {name for name, _, _ in counters.process_counters(os.getpid())}

    assert {"cpu_ns", "stopped", "minor_faults"} <= states and "main_cpu_ns" not in states
    assert {"affinity", "voluntary_switches"} <= sums and "run_delay_ns" not in sums


def test_a_file_that_never_becomes_a_ring_is_told_of_once(rings, spool, monkeypatch, caplog):
    monkeypatch.setattr(module, "SETTLED_NS", -(10**18))
    (rings / "7-1.ring").write_bytes(b"no ring")
    recorder = Recorder([rings], spool)
    for _ in range(5):
        recorder.tick()
    recorder.flush()

    assert rows_of(spool, 46)["a"].tolist() == [1]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "7-1.ring: cannot be read as a ring" in caplog.text
