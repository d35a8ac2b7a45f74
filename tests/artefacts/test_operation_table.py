"""Operation tables as files: Parquet, Arrow and Chrome JSON, whole and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.operation_table import OperationTable

ROWS = {
    "dp_rank": pa.array([0, 0, 1, 1], pa.int8()),
    "stage": pa.array([0, 1, 0, 1], pa.int8()),
    "rank": pa.array([0, 2, 1, 3], pa.int16()),
    "step": pa.array([5, 5, 5, 5], pa.int64()),
    "optype": pa.array(["forward-compute", "optimizer", "forward-compute", "optimizer"]).dictionary_encode(),
    "start_ts": pa.array([0.25, 0.5, 0.25, 0.5], pa.float32()),
    "duration": pa.array([0.125, 0.0625, 0.125, 0.0625], pa.float32()),
    "seq_id": pa.array([0, 0, 0, 0], pa.int32()),
    "mc": pa.array([0, -1, 0, -1], pa.int8()),
    "mb_id": pa.array([3, -1, 3, -1], pa.int8()),
}


def parquet(path: Path, **changes: object) -> Path:
    columns = {**ROWS, **changes}
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path)
    return path


def read(path: Path):
    reader = OperationTable()
    assert reader.recognises(path, head_of(path))
    (table,) = reader.read(path)
    return table


def test_reads_a_table_in_seconds(tmp_path):
    table = read(parquet(tmp_path / "trace.parquet"))

    assert table.kinds == ("forward-compute", "optimizer")
    assert [c.tolist() for c in (table.row_rank, table.replica, table.stage, table.step, table.kind)] == [
        [0, 2, 1, 3], [0, 0, 1, 1], [0, 1, 0, 1], [5, 5, 5, 5], [0, 1, 0, 1],
    ]  # fmt: skip
    assert table.start_ns.tolist() == [250_000_000, 500_000_000, 250_000_000, 500_000_000]
    assert table.duration_ns.tolist() == [125_000_000, 62_500_000, 125_000_000, 62_500_000]
    assert [table.order.tolist(), table.chunk.tolist(), table.micro_batch.tolist()] == [
        [0, 0, 0, 0], [0, -1, 0, -1], [3, -1, 3, -1],
    ]  # fmt: skip
    assert (table.file, table.rank, table.dropped) == (str(tmp_path / "trace.parquet"), None, 0)


@pytest.mark.parametrize(
    ("name", "start", "duration"),
    [
        ("_ns", [250_000_000] * 4, [125_000_000] * 4),
        ("_us", [250_000] * 4, [125_000] * 4),
        ("_ms", [250.0] * 4, [125.0] * 4),
        ("", [250_000_000] * 4, [125_000_000] * 4),  # whole numbers are ns
        ("", [250_000] * 4, [125_000] * 4),  # where they would be absurdly short: us
    ],
)
def test_units_stand_in_names_or_follow_from_the_numbers(tmp_path, name, start, duration):
    path = parquet(
        tmp_path / "t.parquet",
        **{"start_ts": None, "duration": None, f"start{name}": pa.array(start), f"duration{name}": pa.array(duration)},
    )

    table = read(path)

    assert (table.start_ns[0], table.duration_ns[0]) == (250_000_000, 125_000_000)


def test_times_may_be_of_a_type_of_their_own(tmp_path):
    path = parquet(
        tmp_path / "t.parquet",
        start_ts=pa.array([250_000] * 4, pa.timestamp("us")),
        duration=pa.array([125] * 4, pa.duration("ms")),
    )

    table = read(path)

    assert (table.start_ns[0], table.duration_ns[0]) == (250_000_000, 125_000_000)


def test_other_names_and_an_end_instead_of_a_duration(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"global_rank": [1], "iteration": [2], "op_type": ["optimizer"], "start": [0.5], "end": [0.75]}), path
    )

    table = read(path)

    assert (table.row_rank[0], table.step[0], table.start_ns[0], table.duration_ns[0]) == (1, 2, 5 * 10**8, 25 * 10**7)
    assert (table.stage[0], table.replica[0], table.order[0]) == (-1, -1, -1)


def test_rows_that_cannot_be_used_are_counted(tmp_path):
    path = parquet(
        tmp_path / "t.parquet",
        start_ts=pa.array([0.25, None, 0.25, float("inf")], pa.float64()),
        duration=pa.array([0.125, 0.1, -1.0, 0.1], pa.float64()),
    )

    table = read(path)

    assert (len(table.step), table.dropped) == (1, 3)


def test_feather_and_a_compressed_parquet_are_read_as_well(tmp_path):
    feather.write_feather(pa.table(ROWS), tmp_path / "t.feather")
    packed = tmp_path / "t.parquet.gz"
    packed.write_bytes(gzip.compress(parquet(tmp_path / "t.parquet").read_bytes()))

    assert read(tmp_path / "t.feather").start_ns.tolist() == read(packed).start_ns.tolist()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rank": None}, "is no operation table: it has no rank, only dp_rank, stage, step"),
        ({"duration": None}, "it has no duration"),
        ({"optype": pa.array([1, 2, 3, 4])}, "operation types are int64, not names"),
        ({"rank": pa.array([[1]] * 4)}, "column rank is of type list"),
        ({"duration": pa.array([float("nan")] * 4)}, "none of its 4 rows"),
        ({"start_ts": pa.array([1.7e9] * 4, pa.float32())}, "exact to 128,000 ms only"),
    ],
)
def test_says_what_is_wrong_with_a_table(tmp_path, changes, why):
    path = parquet(tmp_path / "t.parquet", **changes)

    with pytest.raises(Unreadable, match=why):
        list(OperationTable().read(path))


@pytest.mark.parametrize("cut", [0, 4, 8, 100, 700, -1])
def test_a_cut_or_damaged_parquet_is_unreadable(tmp_path, cut):
    whole = parquet(tmp_path / "t.parquet").read_bytes()
    path = tmp_path / "cut.parquet"
    path.write_bytes(whole[:cut] if cut >= 0 else whole[:200] + b"\xff" * 300 + whole[500:])

    with pytest.raises(Unreadable):
        list(OperationTable().read(path))


def events(stage: int, replica: int, rank: int):
    thread = 5 * rank
    name = f"PP rank {stage}, TP rank 0"
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": thread, "args": {"name": f"{name}, compute"}}
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": thread + 4, "args": {"name": f"{name}, misc"}}
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": thread + 1, "args": {"name": f"{name}, pp-comm"}}
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": thread + 2, "args": {"name": f"{name}, tp-comm"}}
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": thread + 3, "args": {"name": f"{name}, dp-comm"}}
    for i, kind in enumerate(("forward-compute", "forward-send")):
        yield {
            "ph": "X", "name": kind, "cat": kind, "pid": replica, "tid": thread + i,
            "ts": 1000.5 * (i + 1), "dur": 250.25,
            "args": {"step": 7, "model_chunk": 0 if not i else -1, "mb_id": 2 if not i else None, "seq_id": 0},
        }  # fmt: skip


def test_reads_a_timeline_in_microseconds(tmp_path):
    path = tmp_path / "timeline.json.gz"
    rows = [e for stage in range(2) for replica in range(2) for e in events(stage, replica, 2 * stage + replica)]
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))

    table = read(path)

    assert table.kinds == ("forward-compute", "forward-send")
    assert table.row_rank.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.stage.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert table.replica.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert table.start_ns.tolist() == [1_000_500, 2_001_000] * 4
    assert table.duration_ns.tolist() == [250_250] * 8
    assert table.micro_batch.tolist() == [2, -1] * 4


def test_ranks_may_stand_in_the_events(tmp_path):
    path = tmp_path / "t.json"
    args = {"rank": 3, "stage": 1, "dp_rank": 1, "step": 0}
    event = {"ph": "X", "name": "forward-compute", "pid": 1, "tid": "main", "ts": 1, "dur": 2, "args": args}
    path.write_text(json.dumps({"traceEvents": [event]}))

    table = read(path)

    assert (table.row_rank[0], table.stage[0], table.replica[0], table.step[0]) == (3, 1, 1, 0)


@pytest.mark.parametrize(
    "text",
    ["[", '[{"ph": "X", "name": "forward-compute"', "[]", '{"traceEvents": 3}', '[{"ph": "X", "name": 5}]', "[" * 5000,
     '[{"ph": "X", "name": "forward-compute", "ts": 1, "dur": 1, "pid": [], "tid": {}, "args": {"step": 1}}]',
     '[{"ph": "X", "name": "forward-compute", "ts": "x", "dur": 1e400, "pid": 0, "tid": 0, "args": {"step": 1}}]'],
)  # fmt: skip
def test_a_broken_timeline_is_unreadable(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)

    with pytest.raises(Unreadable):
        list(OperationTable().read(path))


def test_leaves_other_files_alone(tmp_path):
    reader = OperationTable()
    kineto = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2}]}'

    assert not reader.recognises(tmp_path / "t.json", kineto)
    assert not reader.recognises(tmp_path / "t.json", b"\x00" * 100)
    assert not reader.recognises(tmp_path / "t.log", b"forward-compute took 3 ms")


@pytest.mark.parametrize("seed", range(60))
def test_mutations_are_read_or_refused(tmp_path, seed):
    chance = np.random.default_rng(seed)
    if seed % 2:
        data = bytearray(parquet(tmp_path / "t.parquet").read_bytes())
    else:
        data = bytearray(json.dumps([e for r in range(4) for e in events(r // 2, r % 2, r)]).encode())
    for _ in range(int(chance.integers(1, 12))):
        data[int(chance.integers(0, len(data)))] = int(chance.integers(0, 256))
    path = tmp_path / "mutant"
    path.write_bytes(bytes(data))

    try:
        (table,) = OperationTable().read(path)
    except Unreadable:
        return

    assert len(table.step) == len(table.start_ns) > 0


def test_both_forms_of_the_real_job_hold_the_same_operations(data):
    whole = read(data("optable/megatron-8gpu/trace.parquet"))
    drawn = read(data("optable/megatron-8gpu/timeline.json.gz"))

    assert len(whole.step) == len(drawn.step) == 6784
    assert whole.row_rank.tolist() == drawn.row_rank.tolist()
    compute = whole.kind == whole.kinds.index("forward-compute")
    assert np.abs(whole.duration_ns - drawn.duration_ns)[compute].max() <= 1
