"""Kineto traces: every layout and dialect gives the same columns; damage is said and what is around it is kept."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from rankscope.artefacts.kineto import batches
from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.kineto import Kineto
from rankscope.records.imported.device_trace import (
    ANNOTATION,
    CATEGORY_NAMES,
    COLLECTIVE,
    HOST,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATOR,
    PYTHON,
    RUNTIME,
    DeviceTrace,
    Group,
    TimelineSpan,
)  # fmt: skip

HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}],
    "distributedInfo": {
        "backend": "nccl", "rank": 3, "world_size": 8,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}], "nccl_version": "2.21.5",
    },
    "baseTimeNanoseconds": 1_759_300_074_000_000_000,
}  # fmt: skip


def span(cat: str, name: str, ts: float, dur: float, *lane: object, **args: object) -> dict:
    """`lane`: process and thread, or device and stream."""
    pid, tid = lane or (7, 7)
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


EVENTS = [
    {"name": "process_labels", "ph": "M", "ts": 1.0, "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
    {"name": "thread_name", "ph": "M", "ts": 1.0, "pid": 7, "tid": 7, "args": {"name": "thread 7 (python)"}},
    span("user_annotation", "ProfilerStep#5", 100.0, 50.0, **{"External id": 1}),
    span("cpu_op", "aten::mm", 101.5, 8.25, **{"External id": 2, "Sequence number": 9, "Fwd thread id": 0}),
    span("cuda_runtime", "cudaLaunchKernel", 103.0, 4.0, **{"External id": 2, "correlation": 11}),
    {"ph": "s", "id": 11, "pid": 7, "tid": 7, "ts": 103.0, "cat": "ac2g", "name": "ac2g"},
    span("kernel", "gemm", 110.125, 20.5, 0, 7, **{
        "External id": 2, "device": 0, "stream": 7, "correlation": 11, "blocks per SM": 0.5,
        "est. achieved occupancy %": 25,
    }),
    {"ph": "f", "id": 11, "pid": 0, "tid": 7, "ts": 110.125, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 131.0, 2.0, 0, 7, correlation=12, stream=7, bytes=4096),
    span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 140.0, 5.0, 0, 20, **{
        "correlation": 13, "stream": 20, "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
        "Group size": 4, "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 17,
    }),
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 102.0, "args": {
        "Total Reserved": 2048, "Total Allocated": 1024, "Bytes": 512, "Addr": 1, "Device Id": 0, "Device Type": 1,
    }},
    span("python_function", "train.py(12): step", 100.5, 40.0, **{"Python id": 5, "Python parent id": None}),
    span("Trace", "PyTorch Profiler (0)", 90.0, 70.0, "Spans", "PyTorch Profiler", **{"Op count": 0}),
    {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 160.0},
]  # fmt: skip


def write(tmp_path: Path, content: object, name: str = "trace.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def read(path: Path) -> DeviceTrace:
    assert Kineto().recognises(path, head_of(path))
    (table,) = Kineto().read(path)
    assert isinstance(table, DeviceTrace)
    return table


def partly(path: Path) -> tuple[DeviceTrace, str]:
    """What could be read of a damaged file, and what is said of the rest."""
    found = []
    with pytest.raises(Unreadable) as caught:
        found.extend(Kineto().read(path))
    (table,) = found
    assert isinstance(table, DeviceTrace)
    return table, str(caught.value)


def rows(trace: DeviceTrace) -> list[tuple[str, str, int, int]]:
    """(category, name, start, duration) of each span, times in ns since the file's base."""
    base = HEADER["baseTimeNanoseconds"]
    return [(one.category, one.name, one.start_ns - base, one.duration_ns) for one in trace.spans()]


ROWS = [
    ("annotation", "ProfilerStep#5", 100_000, 50_000),
    ("operator", "aten::mm", 101_500, 8_250),
    ("runtime", "cudaLaunchKernel", 103_000, 4_000),
    ("kernel", "gemm", 110_125, 20_500),
    ("memcpy", "Memcpy HtoD (Pinned -> Device)", 131_000, 2_000),
    ("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 140_000, 5_000),
    ("python", "train.py(12): step", 100_500, 40_000),
]


def text(**layout: object) -> bytes:
    return json.dumps({**HEADER, "traceEvents": EVENTS}, **layout).encode()  # type: ignore[arg-type]


class TestColumns:
    def test_holds_every_span_and_its_arguments(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))

        assert rows(trace) == ROWS
        assert trace.correlation.tolist() == [-1, -1, 11, 11, 12, 13, -1]
        assert trace.external.tolist() == [1, 2, 2, 2, -1, -1, -1]
        assert (trace.copy_span.tolist(), trace.copy_bytes.tolist()) == ([4], [4096])
        assert trace.kernel_span.tolist()[0] == 3
        assert (trace.kernel_blocks_per_sm.tolist()[0], trace.kernel_occupancy.tolist()[0]) == (0.5, 25)
        assert (trace.python_span.tolist(), trace.python_id.tolist(), trace.python_parent.tolist()) == ([6], [5], [-1])
        assert (trace.sequence_span.tolist(), trace.sequence_number.tolist()) == ([1], [9])
        assert trace.window_ns == (HEADER["baseTimeNanoseconds"] + 90_000, HEADER["baseTimeNanoseconds"] + 160_000)

    def test_holds_collectives(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))

        assert trace.collective_span.tolist() == [5]
        texts = (trace.collective_operation, trace.collective_group, trace.collective_ranks, trace.collective_dtype)
        assert [trace.names[column[0]] for column in texts] == ["allreduce", "0", "[0, 1, 2, 3]", "Float"]
        numbers = (trace.collective_group_size, trace.collective_elements_in, trace.collective_sequence)
        assert [int(column[0]) for column in numbers] == [4, 1000, 17]

    def test_holds_memory_events(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))

        columns = (trace.memory_bytes, trace.memory_allocated, trace.memory_reserved, trace.memory_device)
        assert [column.tolist() for column in columns] == [[512], [1024], [2048], [0]]
        assert trace.memory_ns.tolist() == [HEADER["baseTimeNanoseconds"] + 102_000]

    def test_reads_the_header(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))

        assert (trace.rank, trace.world_size, trace.backend, trace.num_sms) == (3, 8, "nccl", 132)
        assert trace.groups == (Group("0", "default_pg", (0, 1, 2, 3)),)
        assert trace.device_names == ("NVIDIA H100",)
        assert trace.versions == (("nccl_version", "2.21.5"),)
        assert (trace.wall_clock, trace.complete, trace.dropped) == (True, True, 0)

    def test_a_thread_and_a_stream_of_the_same_numbers_are_two_lanes(self, tmp_path):
        events = [span("python_function", "f", 1, 5, 0, 0), span("kernel", "k", 2, 1, 0, 0)]
        trace = read(write(tmp_path, {**HEADER, "traceEvents": events}))

        assert sorted((lane.device, lane.name) for lane in trace.lanes) == [(HOST, "0"), (0, "0")]

    def test_labels_lanes(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))

        assert {(lane.name, lane.device): lane.label for lane in trace.lanes}["7", HOST] == "thread 7 (python)"

    def test_gives_a_timeline_what_it_draws(self, tmp_path):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": EVENTS}))
        base = HEADER["baseTimeNanoseconds"]

        (drawn,) = trace.spans(np.array([5]))

        lane = int(trace.lane[5])
        assert drawn == TimelineSpan(EVENTS[9]["name"], "collective", lane, base + 140_000, 5_000, 13, 0)
        assert len(list(trace.spans())) == 7


class TestLayouts:
    @pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"indent": 4}, {"separators": (",", ":")}, {"indent": "\t"}])
    @pytest.mark.parametrize("piece", [64, 700, 1 << 20])
    def test_any_indentation_in_pieces_of_any_size(self, tmp_path, monkeypatch, layout, piece):
        monkeypatch.setattr(batches, "PIECE", piece)

        assert rows(read(write(tmp_path, text(**layout)))) == ROWS

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
    def test_compressed_whatever_its_name(self, tmp_path, pack):
        assert rows(read(write(tmp_path, pack(text())))) == ROWS

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
    def test_other_encodings(self, tmp_path, encoding):
        content = text().decode().encode(encoding)
        content = content if encoding != "utf-16-be" else b"\xfe\xff" + content

        assert rows(read(write(tmp_path, content))) == ROWS

    def test_a_header_after_the_events(self, tmp_path):
        trace = read(write(tmp_path, json.dumps({"traceEvents": EVENTS, **HEADER}).encode()))

        assert (rows(trace), trace.rank) == (ROWS, 3)

    def test_a_header_after_a_piece_with_the_end_of_the_list(self, tmp_path, monkeypatch):
        monkeypatch.setattr(batches, "PIECE", 256)
        later = {"more": [{"name": "x", "n": number} for number in range(200)]}
        trace = read(write(tmp_path, json.dumps({"traceEvents": EVENTS, **later, **HEADER}).encode()))

        assert (rows(trace), trace.rank, trace.complete) == (ROWS, 3, True)

    def test_a_bare_list(self, tmp_path):
        trace = read(write(tmp_path, EVENTS, "worker5.json"))

        assert (len(trace.start_ns), trace.rank, trace.wall_clock) == (7, 5, False)

    def test_the_events_of_an_argument_are_none(self, tmp_path, monkeypatch):
        monkeypatch.setattr(batches, "PIECE", 100)
        nested = span("cpu_op", "x", 1, 2, inner=[{"ph": "X", "name": "no"}, {"ph": "X", "name": "none"}])
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [nested, *EVENTS]}))

        assert rows(trace) == [("operator", "x", 1_000, 2_000), *ROWS]

    def test_a_name_that_looks_like_the_end_of_an_event(self, tmp_path, monkeypatch):
        monkeypatch.setattr(batches, "PIECE", 80)
        name = 'a"},{"ph": "X"}\n  },\n  {\n    "ph": "'
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [span("cpu_op", name, 1, 2), *EVENTS]}))

        assert rows(trace) == [("operator", name, 1_000, 2_000), *ROWS]


class TestDialects:
    @pytest.mark.parametrize(
        ("written", "category"),
        [
            ("Operator", OPERATOR), ("cpu_op", OPERATOR), ("Kernel", KERNEL), ("kernel", KERNEL), ("Memcpy", MEMCPY),
            ("gpu_memset", MEMSET), ("Runtime", RUNTIME), ("cuda_driver", RUNTIME), ("hip_runtime", RUNTIME),
            ("xpu_runtime", RUNTIME), ("mtia_runtime", RUNTIME), ("mtia_ccp_events", KERNEL),
            ("user_annotation", ANNOTATION), ("python_function", PYTHON),
        ],
    )  # fmt: skip
    def test_categories_of_all_years_and_vendors(self, tmp_path, written, category):
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [span(written, "x", 1, 2)]}))

        assert CATEGORY_NAMES[trace.category[0]] == CATEGORY_NAMES[category]

    def test_2021(self, tmp_path):
        events = [
            span("Operator", "ProfilerStep#1", 1623142623460172, 500, 9, "9", **{"External id": 2}),
            span("Kernel", "k", 1623142623460200, 3, 0, "stream 7", **{"external id": 2, "correlation": 5}),
            {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": 1623142623460121,
             "args": {"Device Type": 0, "Device Id": -1, "Bytes": 4}},
        ]  # fmt: skip
        trace = read(write(tmp_path, {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))

        assert trace.category.tolist() == [ANNOTATION, KERNEL]
        assert trace.start_ns.tolist() == [1623142623460172_000, 1623142623460200_000]
        assert trace.external.tolist() == [2, 2]
        assert (trace.lanes[trace.lane[1]].name, trace.lanes[trace.lane[1]].device) == ("7", 0)
        assert (trace.memory_allocated.tolist(), trace.memory_device.tolist()) == ([-1], [HOST])
        assert trace.wall_clock

    def test_before_kineto(self, tmp_path):
        events = [
            {"name": "aten::mm", "ph": "X", "ts": 10.5, "dur": 3.5, "tid": 0, "pid": "CPU functions", "args": {}},
            {"name": "gemm", "ph": "X", "ts": 12.5, "dur": 1.0, "tid": "0", "pid": "CUDA functions", "args": {}},
        ]
        trace = read(write(tmp_path, events))

        assert trace.category.tolist() == [OPERATOR, KERNEL]

    def test_fractions_of_microseconds_since_the_epoch_are_not_rounded(self, tmp_path):
        content = (
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": ['
            b'{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1712195495519689.047, "dur": 63.813},'
            b'{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 1712195495519752.861, "dur": 1}]}'
        )
        trace = read(write(tmp_path, content))

        assert trace.start_ns.tolist() == [1712195495519689047, 1712195495519752861]
        assert trace.duration_ns.tolist() == [63_813, 1_000]

    def test_collectives_without_arguments(self, tmp_path):
        events = [span("kernel", name, 1, 2, 0, 7) for name in ("ncclDevKernel_Generic", "gemm", "rcclKernel")]
        trace = read(write(tmp_path, {**HEADER, "traceEvents": events}))

        assert trace.category.tolist() == [COLLECTIVE, KERNEL, COLLECTIVE]
        assert trace.collective_span.tolist() == [0, 2]
        assert trace.collective_operation.tolist() == [-1, -1]

    def test_numbers_as_strings(self, tmp_path):
        event = span("kernel", "ncclKernel_AllReduce", 1, 2, 0, 7, **{
            "correlation": "0x10", "bytes": "12", "Collective name": "allreduce", "In msg nelems": "2049000",
            "Group size": "2", "dtype": "Float", "Process Group Name": 0, "Process Group Ranks": [0, 1],
        })  # fmt: skip
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [event]}))

        assert (trace.correlation.tolist(), trace.collective_elements_in.tolist()) == ([16], [2049000])
        assert trace.names[trace.collective_ranks[0]] == "[0, 1]"

    @pytest.mark.parametrize("info", [None, [], "x", {"rank": None}, {"rank": "x"}, {"rank": -1, "world_size": 0}])
    def test_a_header_without_rank_leaves_it_to_the_name(self, tmp_path, info):
        content = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "traceEvents": EVENTS}

        assert read(write(tmp_path, content, "worker2_step_12.json")).rank == 2

    @pytest.mark.parametrize("groups", [None, 4, {"0": {"ranks": [0, 1]}}, [{"pg_name": "0", "ranks": [0, 1]}, 3]])
    def test_groups_of_all_versions(self, tmp_path, groups):
        content = {**HEADER, "distributedInfo": {"rank": 1, "pg_config": groups}, "traceEvents": EVENTS}
        trace = read(write(tmp_path, content))

        assert trace.groups in ((), (Group("0", "", (0, 1)),))

    def test_counters_of_a_profiler_range(self, tmp_path):
        event = span("cuda_profiler_range", "k", 1, 2, 0, 0, **{"smsp__fadd.sum": 86114304, "kernel": "x"})
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [event, *EVENTS]}))

        assert (trace.counter_span.tolist(), trace.counter_value.tolist()) == ([0], [86114304.0])
        assert trace.names[trace.counter_name[0]] == "smsp__fadd.sum"


class TestWhatIsNoJson:
    @pytest.mark.parametrize("word", ["inf", "-inf", "nan", "-nan(ind)", "NaN", "Infinity", "N/A"])
    def test_numbers_that_are_none(self, tmp_path, word):
        content = text().replace(b'"stream": 7', f'"memory bandwidth (GB/s)": {word}, "stream": 7'.encode())

        assert rows(read(write(tmp_path, content))) == ROWS

    def test_names_that_are_no_utf8(self, tmp_path):
        trace = read(write(tmp_path, text().replace(b"aten::mm", b"aten::m\xff")))

        assert trace.names[trace.name[1]] == "aten::m\ufffd"

    def test_paths_of_windows(self, tmp_path):
        content = text().replace(b"train.py(12)", rb"C:\work\train.py(12)")
        trace = read(write(tmp_path, content))

        assert trace.names[trace.name[6]] == "C:\\work\train.py(12): step"  # \t is an escape, whatever was meant

    def test_control_characters_in_names(self, tmp_path):
        content = text().replace(b"aten::mm", b"aten::\x01m\nm")
        trace = read(write(tmp_path, content))

        assert len(trace.start_ns) == 7


class TestBadInput:
    def test_negative_and_missing_durations_are_counted(self, tmp_path):
        bad = [
            span("cpu_op", "a", 1, -5),
            {**span("cpu_op", "b", 1, 1), "dur": None},
            {**span("kernel", "c", 1, 1), "ts": None},
        ]
        missing = {key: value for key, value in span("cpu_op", "d", 1, 1).items() if key != "dur"}
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [*bad, missing, *EVENTS]}))

        assert (rows(trace), trace.dropped) == (ROWS, 4)

    @pytest.mark.parametrize("value", ["x", [1], {}, 1e300, -1e300, True, 10**30])
    @pytest.mark.parametrize("field", ["ts", "dur", "pid", "tid", "name", "cat", "args"])
    def test_a_field_of_another_type_costs_that_event_at_most(self, tmp_path, field, value):
        bad = {**span("cpu_op", "bad", 1, 2), field: value}
        trace = read(write(tmp_path, {**HEADER, "traceEvents": [bad, 5, None, *EVENTS]}))

        assert rows(trace)[-7:] == ROWS
        assert trace.dropped + len(trace.start_ns) in (9, 10)

    def test_a_cut_file_gives_what_came_before(self, tmp_path):
        trace, why = partly(write(tmp_path, text()[:-700]))

        assert 0 < len(trace.start_ns) < 7
        assert not trace.complete
        assert why.startswith("ends in the middle of its events, at byte")

    def test_a_cut_compressed_file_gives_what_came_before(self, tmp_path):
        many = [span("cpu_op", f"op{number}", number, 1) for number in range(40_000)]
        packed = gzip.compress(json.dumps({**HEADER, "traceEvents": many}).encode())
        trace, why = partly(write(tmp_path, packed[: len(packed) // 2]))

        assert 0 < len(trace.start_ns) < 40_000
        assert "damaged after" in why

    def test_damage_in_the_middle_costs_what_is_damaged(self, tmp_path):
        content = text(indent=2).replace(b'"name": "cudaLaunchKernel"', b'"name": "cuda", "')
        trace, why = partly(write(tmp_path, content))

        assert [row[1] for row in rows(trace)] == [row[1] for row in ROWS if row[1] != "cudaLaunchKernel"]
        assert why.startswith("is damaged near byte")

    @pytest.mark.parametrize(
        "content",
        [
            b'{"schemaVersion": 1, "deviceProperties": []}',
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}',
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [',
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [[[[[[[[[[[[[[',
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [' + b"[" * 100_000,
            b"[" * 100_000,
            b"",
            bytes(range(256)) * 100,
        ],
    )
    def test_nothing_to_read_is_said(self, tmp_path, content):
        with pytest.raises(Unreadable):
            list(Kineto().read(write(tmp_path, content)))

    def test_an_event_without_end_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(batches, "PIECE", 1000)
        monkeypatch.setattr(batches, "LARGEST_EVENT", 5000)
        content = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "' + b"x" * 20_000

        with pytest.raises(Unreadable, match="hold no event"):
            list(Kineto().read(write(tmp_path, content)))

    @pytest.mark.parametrize("seed", range(60))
    def test_mutations_end_in_a_table_or_in_one_line(self, tmp_path, seed):
        path = write(tmp_path, mutated(text(indent=2 if seed % 2 else None), random.Random(seed)))

        try:
            tables = list(Kineto().read(path))
        except Unreadable as error:
            assert "\n" not in str(error)
            return
        assert all(len(table.start_ns) == len(table.lane) for table in tables)


def mutated(content: bytes, chance: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(chance.choice((1, 2, 10))):
        at = chance.randrange(len(found))
        end = at + chance.choice((1, 5, 100))
        match chance.randrange(5):
            case 0:
                found[at] = chance.randrange(256)
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = found[at:end]
            case 3:
                found[at:at] = chance.choice((b"null", b"{", b"]", b'"', b"\\", b"1e999", b"-1", b"\x00", b"}, {"))
            case _:
                found[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
    return bytes(found)


class TestRecognises:
    @pytest.mark.parametrize(
        "content",
        [
            b'{"traceEvents": [{"name": "x", "ph": "X", "cat": "gpu-compute", "ts": 1, "dur": 2}]}',
            b'[{"name": "backward-compute", "cat": "backward-compute", "pid": 0, "ph": "X", "args": {"step": 2}}]',
            b'{"schema": "1.1.1", "nodes": [{"id": 1, "name": "aten::mm"}]}',
            b"ProfilerStep#1 took long",
            b"\x80\x02}q\x00.",
            b"",
        ],
    )
    def test_leaves_other_files_alone(self, content):
        assert not Kineto().recognises(Path("x.json"), content)

    def test_knows_one_by_a_long_header(self):
        head = b'{"schemaVersion": 1, "deviceProperties": [], "x": "' + b"y" * 70_000

        assert Kineto().recognises(Path("x"), head[: 1 << 16])


def test_what_is_held_is_a_piece_and_the_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE", 1 << 17)
    events = [span("cpu_op", f"op{number % 50}", number, 1, **{"External id": number}) for number in range(20_000)]
    path = write(tmp_path, json.dumps({**HEADER, "traceEvents": events}, indent=2).encode())
    read(path)  # what is imported and built once does not count
    tracemalloc.start()
    trace = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(trace.start_ns) == 20_000
    # 41 bytes a span, twice while they are put together; as objects the file takes some 1,000 an event.
    assert peak < 10 * batches.PIECE + 100 * len(events)


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "counts"),
        [
            ("v100-resnet50-a/worker0.1623143089861.pt.trace.json.gz", (8772, 12, 312)),
            ("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz", (14, 2, 0)),
            ("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", (4350, 1600, 145)),
            ("h100-single/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", (1465, 1, 241)),
        ],
    )
    def test_finds_every_piece_of_work(self, data, name, counts):
        trace = read(data(f"kineto/{name}"))

        assert tuple(int((trace.category == kind).sum()) for kind in (KERNEL, MEMCPY, MEMSET)) == counts

    def test_collective_arguments_as_strings(self, data):
        trace = read(data("kineto/hta/nccl_parser_config/nccl_data.json.gz"))
        kernels = np.flatnonzero(trace.category[trace.collective_span] == COLLECTIVE)
        reducing = kernels[trace.collective_operation[kernels] == trace.names.index("allreduce")]
        first = reducing[np.argmin(trace.start_ns[trace.collective_span[reducing]])]

        assert len(kernels) == 21
        assert trace.collective_elements_in[first] == 2_049_000
        assert trace.names[trace.collective_ranks[first]] == "[0, 1]"

    def test_ranks_of_eight(self, data):
        traces = [read(path) for path in sorted(data("kineto/h100-8rank").iterdir())]

        assert [trace.rank for trace in traces] == list(range(8))
        assert {trace.world_size for trace in traces} == {8}

    def test_nanoseconds_are_kept(self, data):
        trace = read(data("kineto/hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"))

        assert int(trace.start_ns[0]) == 1_712_195_495_519_689_047

    def test_counters(self, data):
        trace = read(data("kineto/hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz"))

        assert len(np.unique(trace.counter_span)) == 77

    @pytest.mark.parametrize(
        ("name", "rank"),
        [
            ("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
            ("hta/distributed_info_unavailable/distributed_info_not_found.json.gz", None),
            ("hta/rank_unavailable/rank_not_found.json.gz", None),
            ("hta/rank_non_gpu/rank_non_gpu.json.gz", 0),
        ],
    )
    def test_ranks_where_files_say_little(self, data, name, rank):
        assert read(data(f"kineto/{name}")).rank == rank

    def test_leaves_operation_tables_and_execution_traces_alone(self, data):
        paths = [
            data("optable/megatron-8gpu/timeline.json.gz"),
            data("kineto/hta/execution_trace/benchmark_simple_add_et.json.gz"),
            data("memory/kineto-memory/memory_timeline.raw.gz"),
        ]

        assert [Kineto().recognises(path, head_of(path)) for path in paths] == [False, False, False]


def test_missing_numbers_are_not_numbers(tmp_path):
    trace = read(write(tmp_path, {**HEADER, "traceEvents": [span("kernel", "k", 1, 2, 0, 7)]}))

    assert math.isnan(trace.kernel_occupancy[0])
