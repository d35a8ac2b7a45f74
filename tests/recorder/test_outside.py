"""Ranks that their own sampler cannot see, seen from outside: real processes that sleep, hold the lock, are stopped."""

import os
import signal
import time

import numpy as np
import pytest

from rankscope.base import py_spy
from rankscope.capture.ring import Ring
from rankscope.recorder import outside
from rankscope.recorder.outside import MOST_LOOKS, OutsideLooks
from rankscope.recorder.own_records import OwnRecords
from rankscope.recorder.recorder import Recorder
from rankscope.records.host import OutsideStack, StackSample
from rankscope.records.payload import NAME, PROCESS
from rankscope.records.process import Process
from rankscope.records.record import sources, unpack
from rankscope.records.slot import ROW_FIELDS
from rankscope.records.training import Step
from rankscope.wire.spool import Spool

S = 1_000_000_000
LAYOUT = sources(OutsideStack)
FIELDS = ("of", "state", "holds_lock", "runs")


def look(*pids):
    """pid -> (state, holds the lock, runs, texts from the innermost on), as it is written."""
    own = OwnRecords(0)
    looks = OutsideLooks(own)
    looks.begin(pids)
    until = time.monotonic() + 20
    while not looks.done(7) and time.monotonic() < until:
        time.sleep(0.02)
    slots, payloads = own.take()
    names = {p.id: p.text for p in payloads if p.kind == NAME}
    found = {}
    for slot in slots:
        field = {name: unpack(int(slot[LAYOUT[name].word]), LAYOUT[name]) for name in FIELDS}
        entry = (chr(field["state"]), field["holds_lock"], field["runs"], [])
        found.setdefault(field["of"], entry)[3].append(names[int(slot["name"])])
    assert set(slots["time_ns"].tolist()) <= {7}
    return found


def innermost(texts):
    return [":".join(os.path.basename(text).rsplit(":", 2)[1:]) for text in texts]


HOLDS = "ctypes.PyDLL(None).sleep(60)"
SLEEPS = "time.sleep(60)"


@pytest.mark.parametrize(
    "code, state, holds_lock, runs",
    [(SLEEPS, "S", 0, 0), (HOLDS, "S", 1, 0), ("while True: sum(range(1000))", "R", 1, 1)],
    ids=["sleeps", "holds the lock and sleeps", "computes"],
)
def test_what_a_process_does(child, code, state, holds_lock, runs):
    pid = child(code).pid

    (found,) = look(pid).values()

    assert found[1:3] == (holds_lock, runs)
    assert found[0] == state or runs  # one that computes may wait for a CPU, or for the lock, at that moment
    assert innermost(found[3]) == ["3:busy", "5:<module>"]


def test_a_process_that_was_stopped_is_not_waited_for(child):
    process = child(SLEEPS)
    process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()

    found = look(process.pid)

    assert found[process.pid][0] == "T"
    assert innermost(found[process.pid][3]) == ["3:busy", "5:<module>"]
    assert time.monotonic() - begin < 2


def test_another_thread_that_sleeps_with_the_lock_is_the_one_to_look_at(child):
    code = "import threading; threading.Thread(target=lambda: ctypes.PyDLL(None).sleep(60)).start(); time.sleep(0.01)"
    process = child(code)

    assert innermost(look(process.pid)[process.pid][3])[0].endswith("<lambda>")
    assert look(process.pid)[process.pid][1] == 1


def test_without_the_right_to_trace_its_state_is_still_known(child, no_right_to_trace):
    process = child(SLEEPS)
    process.send_signal(signal.SIGSTOP)

    found = look(process.pid)

    assert found[process.pid][:3] == ("T", 0, 0)
    assert found[process.pid][3][0].startswith("this user may not look into it (")


def test_without_py_spy_its_state_is_still_known(child, monkeypatch):
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    pid = child(SLEEPS).pid

    why = "py-spy is not installed, which takes stacks from outside (pip install py-spy)"
    assert look(pid) == {pid: ("S", 0, 0, [why])}


def test_py_spy_that_does_not_answer_is_ended(child, tmp_path, monkeypatch):
    (tmp_path / "py-spy").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(outside, "LIMIT_NS", S // 5)
    pid = child(SLEEPS).pid

    assert look(pid) == {pid: ("S", 0, 0, ["py-spy did not answer in time"])}
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_process_that_has_ended_is_left_to_the_record_of_its_end(child):
    process = child(SLEEPS)
    process.kill()
    time.sleep(0.1)

    assert look(process.pid) == {}  # a zombie
    process.wait()
    assert look(process.pid) == {}


def test_only_a_few_are_looked_at(child):
    process = child(SLEEPS)

    assert len(look(*[process.pid] * (MOST_LOOKS + 2))) == 1


@pytest.mark.parametrize("sampled, looked_at", [(False, True), (True, False)])
def test_the_recorder_looks_where_no_sample_comes_any_more(tmp_path, sampled, looked_at):
    folder = tmp_path / "rings"
    folder.mkdir()
    ring = Ring(folder / f"{os.getpid()}-1.ring")
    ring.payload(PROCESS, 0, Process(os.getpid()).encode())
    put = ring.lane()
    put(0, S, Step.code, 0, 0, 0, 0, 0)
    now = 0
    spool = Spool(tmp_path / "spool")
    recorder = Recorder([folder], spool, clock=lambda: now)
    for second in range(1, 13):
        now = second * S
        if sampled:
            put(now, 0, StackSample.code, 0, 0, 0, 0, 0)
        recorder.tick()
    answers = []
    until = time.monotonic() + 20
    while not any(answers) and time.monotonic() < until:
        answers.append(recorder.stall_due())
        time.sleep(0.02)
    recorder.flush()

    frames = [spool.load(number) for number, _ in spool.pending()]
    rows = np.concatenate([np.frombuffer(f.rows, np.dtype(list(ROW_FIELDS))) for f in frames])
    seen = rows["a"][rows["kind"] == OutsideStack.code]
    assert answers[-1] is True
    assert (len(answers) > 1, set(seen.tolist())) == ((True, {os.getpid()}) if looked_at else (False, set()))


def test_a_look_that_goes_on_at_the_end_is_given_up(child):
    looks = OutsideLooks(OwnRecords(0))
    looks.begin([child(SLEEPS).pid])

    looks.close()

    assert not looks.busy
