"""A batch is stored once, wherever an earlier attempt to store it ended."""

import subprocess
import sys
import urllib.request
from collections import Counter

import pytest

from rankscope.store.embedded import EmbeddedStore
from rankscope.store.sql_store import _slot_rows
from rankscope.store.store import Batch, StoreError


class Crash(Exception):
    """Stands for the end of the process."""


def crash_after(store, monkeypatch, writes):
    """Let that many statements that write succeed, then fail each one."""
    left = [writes]

    def counting(method):
        def write(*args):
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return method(*args)

        return write

    monkeypatch.setattr(store, "execute", counting(store.execute))
    monkeypatch.setattr(store, "_insert", counting(store._insert))


WHOLE = {
    "commits": [0, 1, 2, 3, 4, 5, 6],
    "texts": ["a", "b"],
    "acknowledged": [1, 2],
}


@pytest.fixture
def batches(make_rows, make_names):
    """Two batches that together make up WHOLE."""
    return Batch(1, 0, make_rows(3)), Batch(2, 0, make_rows(4, first=3), make_names("a", "b"))


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_crash_between_any_two_writes_leaves_nothing_twice(in_doubt, tmp_path, new_store, batches, contents):
    for writes in range(3):
        with new_store(tmp_path / str(writes)) as store, pytest.MonkeyPatch.context() as patch:
            store.append(batches[0])
            if in_doubt:
                store._certain.clear()
            crash_after(store, patch, writes)
            with pytest.raises(Crash):
                store.append(batches[1])

        with EmbeddedStore(tmp_path / str(writes)) as store:
            assert store.append(batches[1]) == 2
            assert contents(store) == WHOLE


def test_a_crash_after_the_slots_alone_leaves_nothing_twice(embedded, batches, contents):
    embedded.append(batches[0])
    embedded._insert("slots", _slot_rows(batches[1]))
    embedded._certain.clear()

    embedded.append(batches[1])

    assert contents(embedded) == WHOLE


def test_a_part_of_a_batch_is_replaced_by_the_whole(embedded, batches, contents):
    embedded.append(batches[0])
    part = "SELECT * REPLACE (2 AS batch, commit + 3 AS commit) FROM slots WHERE commit < 2"
    embedded.execute(f"INSERT INTO slots {part}")
    embedded._certain.clear()

    embedded.append(batches[1])

    assert contents(embedded) == WHOLE


def test_an_insert_whose_answer_was_lost_is_not_stored_twice(clickhouse, clickhouse_port, batches, contents):
    clickhouse.append(batches[0])
    urllib.request.urlopen(f"http://127.0.0.1:{clickhouse_port}/lose-next-answer").close()

    with pytest.raises(StoreError):
        clickhouse.append(batches[1])
    committed_unseen = contents(clickhouse)["commits"]
    clickhouse.append(batches[1])

    assert committed_unseen == WHOLE["commits"]
    assert contents(clickhouse) == WHOLE


WRITER = """
import sys
import numpy as np
from rankscope.records.rows import ROW_DTYPE
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.store import Batch

store = EmbeddedStore(sys.argv[1])
store.migrate()
number = int(sys.argv[2])
while True:
    number += 1
    rows = np.zeros(200, ROW_DTYPE)
    rows["commit"] = number
    print(store.append(Batch(number, 0, rows.tobytes())), flush=True)
"""


def test_a_killed_writer_loses_no_acknowledged_row_and_doubles_none(tmp_path, contents):
    acknowledged = 0
    for appends in (7, 23):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(acknowledged)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(appends):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])

    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        rows = Counter(store.query("SELECT commit FROM slots").column(0).to_pylist())
        last = store.query("SELECT max(number) FROM batches").column(0)[0].as_py()

    # One batch may have been committed without its number having been printed, one more be half-way.
    assert last - acknowledged in (0, 1)
    assert [rows.pop(number) for number in range(1, last + 1)] == [200] * last
    assert rows in (Counter(), Counter({last + 1: 200}))
