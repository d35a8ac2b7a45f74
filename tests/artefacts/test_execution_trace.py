"""Execution traces of PyTorch: flat and nested schemas, whole and cut off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.execution_trace import ExecutionTrace
from rankscope.records.imported.execution_trace import CollectiveCall, Group

TENSOR = [40, 41, 0, 1000, 4, "cuda:1"]


def comms(sequence: int, operation: str, rank: int = 1, tensor: list = TENSOR) -> list:
    """Inputs of `record_param_comms` as PyTorch 2.x writes them."""
    return [[tensor], sequence, ["0", "default_pg"], rank, operation, [], [], 0, 1, 2]


def flat() -> dict:
    """Schema 1.0.1."""
    nodes = [
        {"name": "[pytorch|profiler|execution_graph|thread]", "id": 2, "parent": 1, "inputs": [], "outputs": []},
        {"name": "ProfilerStep#3", "id": 3, "parent": 2, "inputs": [], "outputs": []},
        {"name": "aten::mm", "id": 5, "parent": 3, "inputs": [TENSOR, [50, 51, 0, 10, 2, "cuda:1"]], "outputs": []},
        {"name": "record_param_comms", "id": 6, "parent": 3, "inputs": comms(7, "allreduce"), "outputs": []},
    ]
    return {"schema": "1.0.1", "pid": 77, "time": "", "start_ts": 1, "nodes": nodes, "finish_ts": 2}


def nested(calls: int = 1) -> dict:
    """Schema 1.1.0."""
    empty = {"values": [], "shapes": [], "types": []}
    groups = '[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 2}]'
    nodes = [
        {"id": 2, "name": "## process_group:init ##", "ctrl_deps": 1, "inputs": {"values": [groups]}, "outputs": empty},
        {"id": 3, "name": "ProfilerStep#8", "ctrl_deps": 2, "inputs": empty, "outputs": empty, "attrs": []},
    ]
    for i in range(calls):
        attributes = {
            "collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 1000, "out_msg_nelems": 1000,
            "global_rank_start": 0, "global_rank_stride": 1, "pg_size": 2, "pg_name": "0", "pg_desc": "default_pg",
        }  # fmt: skip
        attrs = [{"name": name, "type": "", "value": value} for name, value in attributes.items()]
        nodes.append(
            {"id": 4 + i, "name": "record_param_comms", "ctrl_deps": 3, "inputs": {"values": comms(7 + i, "allreduce")},
             "outputs": empty, "attrs": attrs}
        )  # fmt: skip
    return {"schema": "1.1.0-chakra.0.0.4", "pid": 77, "time": "", "start_ts": 1, "nodes": nodes, "finish_ts": 2}


def write(path: Path, trace: dict) -> Path:
    path.write_text(json.dumps(trace, indent=1))
    return path


def read(path: Path):
    reader = ExecutionTrace()
    assert reader.recognises(path, head_of(path))
    (found,) = reader.read(path)
    return found


def test_reads_a_flat_schema(tmp_path):
    t = read(write(tmp_path / "et.json", flat()))

    assert t.node.tolist() == [2, 3, 5, 6]
    assert t.parent.tolist() == [1, 2, 3, 3]
    assert [t.names[n] for n in t.name][1:] == ["ProfilerStep#3", "aten::mm", "record_param_comms"]
    assert t.groups == (Group("0", "default_pg", 0, 1, 2),)
    assert t.collectives == (CollectiveCall(6, 3, 0, 7, "allreduce", "", 1000, -1),)
    assert (t.step_number.tolist(), t.tensors, t.tensor_bytes) == ([3], 2, 4020)
    assert (t.rank, t.schema, t.process_id, t.complete, t.dropped) == (1, "1.0.1", 77, True, 0)


def test_reads_a_nested_schema_with_attributes(tmp_path):
    t = read(write(tmp_path / "et.json", nested()))

    assert t.collectives == (CollectiveCall(4, 8, 1, 7, "allreduce", "Float", 1000, 1000),)
    assert t.groups == (Group("0", "default_pg", -1, -1, 2), Group("0", "default_pg", 0, 1, 2))
    assert t.rank == 1


def test_a_root_is_no_rank_and_a_wait_no_collective(tmp_path):
    trace = flat()
    trace["nodes"][3]["inputs"] = comms(7, "broadcast", rank=0)
    wait = {"name": "record_param_comms", "id": 9, "parent": 3, "inputs": [7, ["", ""], 1, "wait", [], []]}
    trace["nodes"].append(wait)

    t = read(write(tmp_path / "et_rank5.json", trace))

    assert (t.rank, [c.operation for c in t.collectives]) == (5, ["broadcast"])


def test_what_stands_before_the_cut_is_used(tmp_path):
    text = json.dumps(nested(40), indent=1)
    path = tmp_path / "et.json"
    path.write_text(text[: int(len(text) * 0.8)])

    found = ExecutionTrace().read(path)
    t = next(found)

    assert t.complete is False
    assert 20 < len(t.collectives) < 40
    with pytest.raises(Unreadable, match=r"cut off after .* nodes .*; what stands before was used"):
        next(found)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"schema": "1.0.1", "nodes": [', '{"schema": "1.0.1", "nodes": []}', '{"nodes": 5}', "[" * 100000,
     '{"schema": "1.0.1", "nodes": [{"id": "x", "name": 3}]}'],
)  # fmt: skip
def test_broken_files_are_unreadable(tmp_path, text):
    path = tmp_path / "et.json"
    path.write_text(text)

    with pytest.raises(Unreadable):
        list(ExecutionTrace().read(path))


def test_a_cut_gzip_is_unreadable(tmp_path):
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(json.dumps(nested(200)).encode())[:-40])

    with pytest.raises(Unreadable, match="damaged"):
        list(ExecutionTrace().read(path))


def test_leaves_other_files_alone():
    reader = ExecutionTrace()

    assert not reader.recognises(Path("t.json"), b'{"schemaVersion": 1, "traceEvents": []}')
    assert not reader.recognises(Path("t.json"), b'{"schema": "rankscope.report/1", "nodes": 2}')


@pytest.mark.parametrize("seed", range(60))
def test_mutations_are_read_or_refused(tmp_path, seed):
    chance = np.random.default_rng(seed)
    data = bytearray(json.dumps(nested(3) if seed % 2 else flat()).encode())
    for _ in range(int(chance.integers(1, 8))):
        data[int(chance.integers(0, len(data)))] = int(chance.integers(32, 127))
    path = tmp_path / "mutant.json"
    path.write_bytes(bytes(data))

    try:
        tables = []
        for t in ExecutionTrace().read(path):
            tables.append(t)
    except Unreadable:
        return

    assert len(tables[0].node) == len(tables[0].parent)


def test_the_real_trace_of_one_of_two_ranks(data):
    t = read(data("execution_trace/param/resnet_2gpu_et.json.gz"))

    assert (len(t.node), t.rank, t.step_number.tolist(), len(t.collectives)) == (14392, 1, [4, 5, 6], 21)
    assert {(c.operation, c.in_elements) for c in t.collectives} == {
        ("broadcast", 53120), ("broadcast", 53), ("allreduce", 2049000), ("allreduce", 7875584), ("allreduce", 6563840),
        ("allreduce", 6637568), ("allreduce", 2431040),
    }  # fmt: skip


def test_the_real_flat_trace(data):
    t = read(data("execution_trace/param/linear_et.json.gz"))

    assert (len(t.node), t.schema, t.rank, t.process_id) == (931, "1.0.1", None, 24248)
