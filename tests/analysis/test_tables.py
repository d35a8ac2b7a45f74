"""The same tables from a store as from memory."""

import numpy as np
import pytest

from rankscope.analysis import tables
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Part, column, load, make_tables
from rankscope.records.host import Lost, ProcessEnd, StackSample
from rankscope.records.payload import Payload
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Forward, Metric, Step
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.store import Batch
from rankscope.testing.known_runs import known_run
from rankscope.testing.writer import Writer


def stored(folder, run):
    payloads = tuple(Payload(0, process, kind, id, text) for process, kind, id, text in run.payloads)
    with EmbeddedStore(folder) as store:
        store.migrate()
        half = len(run.rows) // 2
        store.append(Batch(1, 0, run.rows[:half].tobytes(), payloads))
        store.append(Batch(2, 0, run.rows[half:].tobytes()))
        return load(store)


def in_order(rows):
    return rows[np.lexsort((rows["commit"], rows["process"], rows["time_ns"]))]


def test_a_stored_run_is_read_back_whole(tmp_path):
    run = known_run("too few workers")

    read = stored(tmp_path, run)

    made = run.tables
    assert read.rows.keys() == made.rows.keys()
    for kind in made.rows:
        for name in ("process", "time_ns", "duration_ns", "name", "step", "a", "b", "c", "lane"):
            assert np.array_equal(in_order(read.rows[kind])[name], in_order(made.rows[kind])[name]), (kind, name)
    assert read.names == made.names
    assert read.stacks == made.stacks
    assert read.processes == made.processes
    assert Facts(read).charges == Facts(made).charges


def test_of_a_long_run_all_samples_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_RANK_STEPS", 40)
    monkeypatch.setattr(tables, "FIRST_STEPS", 5)
    run = known_run("two ranks")

    read = stored(tmp_path, run)

    assert read.skipped_steps == 75
    assert len(read.of(StackSample)) < len(run.tables.of(StackSample))


def test_of_several_attempts_one_is_read_up_to_the_moment_when_it_was_ended(tmp_path):
    first, second = Writer(Process(7, started_ns=100)), Writer(Process(8, started_ns=1000))
    recorder = Writer(Process(9, "recorder", rank=-1))
    for writer, begin in ((first, 100), (second, 1000)):
        for step in range(3):
            writer.put(Step, begin + 10 * step, begin + 10 * step + 9, step)
    recorder.put(ProcessEnd, 500, 500, 0, of=7, status=15, known=1)
    recorder.put(ProcessEnd, 1500, 1500, 0, of=8, status=0, known=1)
    writers = (first, second, recorder)
    payloads = tuple(Payload(0, *one) for writer in writers for one in writer.payloads())
    rows = np.array([row for writer in writers for row in writer.rows], ROW_DTYPE)

    def read(part):
        found = load(store, part)
        return (
            [process.pid for process in found.processes.values() if process.role == "rank"],
            found.of(Step)["time_ns"].tolist(),
            column(found.of(ProcessEnd), ProcessEnd, "of").tolist(),
        )

    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        store.append(Batch(1, 0, rows.tobytes(), payloads))

        assert read(Part()) == ([7, 8], [100, 110, 120, 1000, 1010, 1020], [7, 8])
        assert read(Part(since_ns=900)) == ([8], [1000, 1010, 1020], [8])
        assert read(Part(until_ns=900, stopped_ns=119)) == ([7], [100, 110], [7])


def test_fields_are_cut_out_of_their_words():
    writer = Writer(Process(7))
    writer.put(Forward, 5, 9, 3, name="Net", elements=12, model="Net#1", training=1, compiled=1)
    writer.put(Metric, 10, 10, 3, name="loss", value=0.5)
    made = make_tables(np.array(writer.rows, ROW_DTYPE), writer.payloads())

    rows = made.of(Forward)

    fields = ("elements", "training", "grad", "compiled", "trained")
    assert {f: column(rows, Forward, f).tolist() for f in fields} == {
        "elements": [12], "training": [1], "grad": [0], "compiled": [1], "trained": [0],
    }  # fmt: skip
    assert made.name(7, int(column(rows, Forward, "model")[0])) == "Net#1"
    assert column(made.of(Metric), Metric, "value").tolist() == [0.5]


def test_names_that_were_lost_are_not_invented():
    known = known_run("two ranks").tables

    assert [known.name(1000, 0), known.name(1000, 60_000), known.name(1, 1)] == ["", "?", "?"]


def test_lost_records_are_added_up_by_reason():
    writer = Writer(Process(7, "recorder"))
    for count in (3, 4):
        writer.put(Lost, 1, 1, 0, name="ring overrun", count=count, of=1)
    writer.put(Lost, 1, 1, 0, name="names: region full", count=1, of=1)

    assert make_tables(np.array(writer.rows, ROW_DTYPE), writer.payloads()).lost == {
        "ring overrun": 7,
        "names: region full": 1,
    }


def test_a_kind_without_rows_is_empty():
    made = make_tables(np.empty(0, ROW_DTYPE), [])

    assert len(made.of(Forward)) == 0


def test_a_writer_says_what_a_record_has_not():
    with pytest.raises(ValueError, match="Forward has no field 'elementss'; it has name, elements"):
        Writer(Process(1)).put(Forward, 0, 1, 0, elementss=1)
