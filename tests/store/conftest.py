import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rankscope.records.payload import NAME, Payload
from rankscope.records.rows import ROW_DTYPE
from rankscope.store.clickhouse import ClickHouseStore
from rankscope.store.embedded import EmbeddedStore

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def clickhouse_port(tmp_path_factory):
    """A server that speaks ClickHouse's HTTP protocol, in a process of its own."""
    command = [sys.executable, str(HERE / "clickhouse_shim.py"), str(tmp_path_factory.mktemp("clickhouse"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield int(server.stdout.readline())
        server.kill()


@pytest.fixture(scope="session")
def migrated_server(clickhouse_port):
    """The address of a migrated store on the server."""
    address = f"http://127.0.0.1:{clickhouse_port}/shared"
    with ClickHouseStore(address) as store:
        store.migrate("server")
    return address


@pytest.fixture
def clickhouse(migrated_server):
    """An empty store on the server."""
    with ClickHouseStore(migrated_server) as store:
        for table in ("slots", "payloads", "batches"):
            store.execute(f"TRUNCATE TABLE {table}")
        yield store


@pytest.fixture(scope="session")
def migrated_folder(tmp_path_factory):
    """An empty migrated store, closed; copying it is faster than migrating anew."""
    folder = tmp_path_factory.mktemp("migrated")
    with EmbeddedStore(folder) as store:
        store.migrate()
    return folder


@pytest.fixture
def new_store(migrated_folder):
    """A function that opens an empty migrated store in a folder."""

    def open_new(folder):
        shutil.copytree(migrated_folder, folder, symlinks=True)
        return EmbeddedStore(folder)

    return open_new


@pytest.fixture
def embedded(tmp_path, new_store):
    with new_store(tmp_path / "store") as store:
        yield store


@pytest.fixture(params=["embedded", "clickhouse"])
def store(request):
    return request.getfixturevalue(request.param)


def _make_rows(count, *, first=0, **columns):
    """`count` slots, one a millisecond and ten a step, of process 7; their commit numbers tell them apart."""
    rows = np.zeros(count, ROW_DTYPE)
    number = first + np.arange(count)
    rows["process"], rows["kind"], rows["duration_ns"] = 7, 2, 10
    rows["commit"] = rows["seal"] = number
    rows["time_ns"] = number * 1_000_000
    rows["step"] = number // 10
    for name, values in columns.items():
        rows[name] = values
    return rows.tobytes()


def _make_names(*texts, node=0):
    return tuple(Payload(node, 7, NAME, ident, text) for ident, text in enumerate(texts))


def _contents(store):
    """Commit numbers, texts and acknowledged numbers."""

    def values(sql):
        return store.query(sql).column(0).to_pylist()

    return {
        "commits": values("SELECT commit FROM slots ORDER BY commit"),
        "texts": values("SELECT text FROM payloads ORDER BY text"),
        "acknowledged": values("SELECT number FROM batches ORDER BY number"),
    }


@pytest.fixture
def make_rows():
    return _make_rows


@pytest.fixture
def make_names():
    return _make_names


@pytest.fixture
def contents():
    return _contents
