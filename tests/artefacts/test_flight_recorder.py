"""Flight Recorder dumps as pickles and as JSON, of old and new versions."""

from __future__ import annotations

import json
import pickle

import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.flight_recorder import FlightRecorder

NEW = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 5, "last_started_collective": -1, "last_completed_collective": 4}},
    "entries": [
        {"record_id": 3, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": seq, "p2p_seq_id": 0,
         "op_id": seq, "profiling_name": "nccl:all_reduce", "time_created_ns": 1000 + seq, "input_sizes": [[4, 2]],
         "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "state": "scheduled", "retired": False, "is_p2p": False,
         "frames": [{"filename": "/x/torch/distributed/c10d.py", "line": 3, "name": "all_reduce"},
                    {"filename": "/home/me/train.py", "line": 41, "name": "step"}]}
        for seq in (4, 5)
    ],
}  # fmt: skip


def read(path):
    (dump,) = FlightRecorder().read(path)
    return dump


@pytest.mark.parametrize("dump", [lambda x: pickle.dumps(x, 2), lambda x: json.dumps(x).encode()])
def test_pickle_and_json_say_the_same(tmp_path, dump):
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(dump(NEW))

    assert FlightRecorder().recognises(path, head_of(path))
    found = read(path)
    assert found.rank == 1
    assert [(e.group, e.sequence, e.operation, e.finished, e.site) for e in found.entries] == [
        ("0", 4, "all_reduce", True, "/home/me/train.py:41:step"),  # its group has completed number 4
        ("0", 5, "all_reduce", False, "/home/me/train.py:41:step"),
    ]
    assert [(g.name, g.ranks, g.last_enqueued, g.last_completed) for g in found.groups] == [("0", (0, 1), 5, 4)]


def test_an_old_dump_has_one_number_and_no_group_names(tmp_path):
    path = tmp_path / "trace_0"
    entry = {"pg_id": 0, "seq_id": 7, "profiling_name": "nccl:broadcast", "state": "completed", "input_sizes": [[1]]}
    path.write_bytes(pickle.dumps({"version": "1.5", "nccl_version": "2.19", "entries": [entry]}, 2))

    assert FlightRecorder().recognises(path, head_of(path))
    (only,) = read(path).entries
    assert (only.group, only.sequence, only.operation, only.finished) == ("0", 7, "broadcast", True)


def test_torch_2_2_writes_nothing_around_the_entries(tmp_path):
    path = tmp_path / "trace_0"
    entry = {"pg_id": 0, "seq_id": 7, "profiling_name": "nccl:broadcast", "state": "started", "input_sizes": [[1]]}
    path.write_bytes(pickle.dumps([entry], 2))

    assert FlightRecorder().recognises(path, head_of(path))
    assert [(e.sequence, e.operation, e.finished) for e in read(path).entries] == [(7, "broadcast", False)]


def test_the_status_of_a_group_is_written_by_a_number_of_the_process_and_not_by_its_name(tmp_path):
    path = tmp_path / "dump_3"
    config = {"0": {"ranks": "[0, 1]"}, "1": {"ranks": "[0]"}, "37": {"ranks": "[0, 1]"}}
    how_far = {"0": 10, "1": 20, "5": 30}
    status = {key: {"last_enqueued_collective": n, "last_completed_collective": n} for key, n in how_far.items()}
    path.write_text(json.dumps({"pg_config": config, "pg_status": status, "entries": []}))

    assert [(g.name, g.last_enqueued) for g in read(path).groups] == [("0", 10), ("1", 20), ("37", 30)]
    config["99"] = {"ranks": "[1]"}  # without an entry that names both, nothing tells which is which
    path.write_text(json.dumps({"pg_config": config, "pg_status": status, "entries": []}))
    assert [(g.name, g.last_enqueued) for g in read(path).groups] == [("0", 10), ("1", -1), ("37", -1), ("99", -1)]


def test_groups_that_have_only_a_number_are_not_those_of_other_ranks(tmp_path):
    path = tmp_path / "dump_3"
    path.write_text(json.dumps({"pg_config": {}, "entries": [{"pg_id": n, "seq_id": 1} for n in (0, 2)]}))

    assert [e.group for e in read(path).entries] == ["0", "2 of rank 3"]


def test_a_dump_that_multiplies_itself_is_bounded(tmp_path):
    sizes = [[1] * 1000] * 1000
    path = tmp_path / "dump_3"
    path.write_bytes(pickle.dumps({"pg_config": {}, "entries": [{"seq_id": 1, "input_sizes": sizes}] * 600_000}))
    with pytest.raises(Unreadable, match="600,000 entries"):
        read(path)

    path.write_bytes(pickle.dumps({"pg_config": {}, "entries": [{"seq_id": 1, "input_sizes": sizes}]}))
    assert len(read(path).entries[0].input_sizes) == 256


@pytest.mark.parametrize(
    "data",
    [b"\x80\x02]q\x00.", b'{"pg_config": 1, "entries": 3}', b'{"pg_config": {}, "entries": [5]}', b'{"entries": [',
     pickle.dumps({"pg_config": {}, "entries": [{"collective_seq_id": "x"}]})],
)  # fmt: skip
def test_what_is_no_dump_is_refused_in_a_line(tmp_path, data):
    path = tmp_path / "dump_0"
    path.write_bytes(data)

    with pytest.raises(Unreadable):
        read(path)


@pytest.mark.parametrize("case", ["case-a", "case-b"])
def test_real_dumps_are_read(data, case):
    dumps = [read(path) for path in sorted(data(f"flight_recorder/{case}").iterdir())]

    assert sorted(dump.rank for dump in dumps) == list(range(16))
