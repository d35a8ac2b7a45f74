"""Exports of Nsight Systems: whole, trimmed, of several schemas, broken."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.nsight_systems import NsightSystems
from rankscope.records.imported import device_activity as table

PROCESS = 0x1000000
STRINGS = {1: "gemm", 2: "ncclDevKernel_AllReduce_Sum_bf16", 3: "cudaLaunchKernel_v7000", 4: "forward", 5: "read"}


def export(path: Path, drop: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> Path:
    """A small export as Nsight Systems writes it, by its documented tables."""
    device = "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    device += "globalPid INTEGER"
    columns = {
        "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
        "CUPTI_ACTIVITY_KIND_KERNEL": f"{device}, demangledName INTEGER, shortName INTEGER",
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{device}, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
        "CUPTI_ACTIVITY_KIND_MEMSET": f"{device}, bytes INTEGER",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER",
        "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, "
        "globalTid INTEGER",
        "OSRT_API": "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER",
        "TARGET_INFO_GPU": "id INTEGER, name TEXT",
        "META_DATA_EXPORT": "name TEXT, value TEXT",
    }
    tables = {name: f"CREATE TABLE {name} ({own})" for name, own in columns.items()}
    rows = {
        "StringIds": [(i, text) for i, text in STRINGS.items()],
        "CUPTI_ACTIVITY_KIND_KERNEL": [(100, 200, 0, 7, 1, PROCESS, 1, 1), (300, 350, 0, 9, 2, PROCESS, 2, 2)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(400, 500, 0, 7, 3, PROCESS, 4096, 1, 0, 2)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [(50, 60, 0, 7, 4, PROCESS, 64)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(90, 95, 0, PROCESS + 5, 1, 3)],
        "NVTX_EVENTS": [
            (80, 600, 59, "train, op_id = 17", None, PROCESS + 5), (85, 99, 59, None, 4, PROCESS + 5),
            (86, None, 34, "a mark", None, PROCESS + 5),
        ],
        "OSRT_API": [(10, 40, PROCESS + 5, 5)],
        "TARGET_INFO_GPU": [(0, "NVIDIA H100"), (1, "NVIDIA H100")],
        "META_DATA_EXPORT": [("EXPORT_PRODUCT_VERSION", "2024.5.1"), ("EXPORT_SCHEMA_VERSION", "3.15.1")],
    }  # fmt: skip
    with sqlite3.connect(path) as db:
        for name, statement in tables.items():
            if name in drop:
                continue
            db.execute(statement)
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[name][0]))})", rows[name])
        for statement in more:
            db.execute(statement)
    db.close()
    return path


def read(path: Path):
    reader = NsightSystems()
    assert reader.recognises(path, head_of(path))
    (found,) = reader.read(path)
    return found


def test_reads_what_devices_did_and_hosts_asked(tmp_path):
    t = read(export(tmp_path / "profile.sqlite"))

    assert t.start_ns.tolist() == [50, 100, 300, 400]
    assert t.category.tolist() == [table.SET, table.KERNEL, table.COLLECTIVE, table.COPY]
    assert [t.names[n] if n >= 0 else "" for n in t.name.tolist()] == ["", "gemm", STRINGS[2], ""]
    assert (t.direction[3], bool(t.pageable[3]), t.bytes[3]) == (table.TO_DEVICE, True, 4096)
    assert [t.names[n] for n in t.call_name] == ["cudaLaunchKernel_v7000"]
    assert [t.names[n] for n in t.range_name] == ["train", "forward"]
    assert [t.names[n] for n in t.system_name] == ["read"]
    assert t.process_of(t.call_thread).tolist() == [PROCESS]
    assert (t.devices, t.product, t.schema, t.dropped) == ((table.Device(0, "NVIDIA H100"),), "2024.5.1", "3.15.1", 0)
    assert t.absent == ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",)


def test_the_rank_is_that_of_the_name_where_there_is_one_gpu(tmp_path):
    assert read(export(tmp_path / "report_rank3.sqlite")).rank == 3

    more = ("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 1, 7, 9, 0, 1, 1)",)
    assert read(export(tmp_path / "node_3.sqlite", more=more)).rank is None


def test_tables_and_columns_may_be_missing(tmp_path):
    path = tmp_path / "trimmed.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start REAL, end REAL, shortName TEXT)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1.0, 5.0, 'gemm'), (9.0, 7.0, 'x'), (NULL, 3, 'x')")
    db.close()

    t = read(path)

    assert (t.start_ns.tolist(), t.end_ns.tolist(), t.device.tolist(), t.dropped) == ([1], [5], [0], 2)
    assert len(t.call_start_ns) == len(t.range_start_ns) == 0


def test_graphs_are_device_work(tmp_path):
    more = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1000, 2000, 0, 5)",
    )

    t = read(export(tmp_path / "graphs.sqlite", more=more))

    assert (t.category[-1], t.start_ns[-1]) == (table.GRAPH, 1000)


def test_a_compressed_export_is_read(tmp_path):
    path = tmp_path / "p.sqlite.gz"
    path.write_bytes(gzip.compress(export(tmp_path / "p.sqlite").read_bytes()))

    assert read(path).start_ns.tolist() == [50, 100, 300, 400]


def test_views_that_compute_for_ever_are_not_asked(tmp_path):
    endless = (
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS start, i AS end, 0 AS deviceId FROM n"
    )
    path = export(tmp_path / "p.sqlite", drop=("CUPTI_ACTIVITY_KIND_KERNEL",), more=(endless,))

    assert read(path).category.tolist() == [table.SET, table.COPY]


def test_an_export_without_devices_says_so(tmp_path):
    drop = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")

    with pytest.raises(Unreadable, match="holds no activity of a GPU: it was recorded without CUDA"):
        list(NsightSystems().read(export(tmp_path / "p.sqlite", drop=drop)))


def test_other_databases_are_left_alone(tmp_path):
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE experiments (id INTEGER)")
    db.close()

    assert not NsightSystems().recognises(path, head_of(path))
    assert not NsightSystems().recognises(tmp_path / "x", b"nothing of the kind")
    assert not NsightSystems().recognises(tmp_path / "absent", b"SQLite format 3\0" + b"\x00" * 90)


@pytest.mark.parametrize("keep", [20, 100, 5000, 20000])
def test_a_cut_database_is_unreadable(tmp_path, keep):
    whole = export(tmp_path / "p.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[:keep])

    with pytest.raises(Unreadable):
        list(NsightSystems().read(path))


@pytest.mark.parametrize("seed", range(80))
def test_mutations_are_read_or_refused(tmp_path, seed):
    chance = np.random.default_rng(seed)
    data = bytearray(export(tmp_path / "p.sqlite").read_bytes())
    for _ in range(int(chance.integers(1, 60))):
        data[int(chance.integers(16, len(data)))] = int(chance.integers(0, 256))
    path = tmp_path / "mutant.sqlite"
    path.write_bytes(bytes(data))

    try:
        (t,) = NsightSystems().read(path)
    except Unreadable:
        return

    assert (t.end_ns >= t.start_ns).all()


def test_the_real_export_of_two_gpus(data):
    t = read(data("nsys/h100_2gpu_1s.sqlite"))

    kernels = t.category == table.KERNEL
    assert [d.number for d in t.devices] == [0, 1]
    assert (int(kernels.sum()), t.schema, t.dropped) == (3442, "3.25.0", 0)
    assert (t.end_ns - t.start_ns)[kernels].sum() / 1e6 == pytest.approx(44.8, abs=0.05)
