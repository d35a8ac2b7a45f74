"""What every store promises, asked of each one."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankscope.records.payload import NAME, STACK, Payload
from rankscope.store.store import Batch, StoreError


def test_append_gives_back_the_number_and_keeps_rows_and_texts(store, make_rows, make_names, contents):
    acknowledged = [
        store.append(Batch(1, 0, make_rows(3), make_names("a", "b"))),
        store.append(Batch(2, 0, make_rows(2, first=3))),
    ]

    assert acknowledged == [1, 2]
    assert contents(store) == {
        "commits": [0, 1, 2, 3, 4],
        "texts": ["a", "b"],
        "acknowledged": [1, 2],
    }


def test_every_column_of_a_row_comes_back(store, make_rows):
    row = make_rows(
        1, node=3, lane=2, commit=2**64 - 1, seal=2**64 - 1, time_ns=5, name=65535, step=2**32 - 1, a=-1, b=-(2**63)
    )

    store.append(Batch(9, 3, row))

    assert store.query("SELECT * FROM slots").to_pylist() == [
        {
            "process": 7,
            "lane": 2,
            "node": 3,
            "commit": 2**64 - 1,
            "time_ns": 5,
            "duration_ns": 10,
            "kind": 2,
            "name": 65535,
            "step": 2**32 - 1,
            "a": -1,
            "b": -(2**63),
            "c": 0,
            "seal": 2**64 - 1,
            "batch": 9,
        }
    ]


def test_a_batch_that_comes_again_is_acknowledged_and_stored_once(store, make_rows, make_names, contents):
    batch = Batch(1, 0, make_rows(3), make_names("a"))

    acknowledged = [store.append(batch), store.append(batch), store.append(Batch(2, 0)), store.append(batch)]

    assert acknowledged == [1, 1, 2, 2]
    assert contents(store)["commits"] == [0, 1, 2]


def test_nodes_number_their_batches_apart(store, make_rows, contents):
    store.append(Batch(5, 0, make_rows(1)))

    acknowledged = store.append(Batch(1, 1, make_rows(1, first=1, node=1)))

    assert acknowledged == 1
    assert contents(store)["commits"] == [0, 1]


def test_a_number_that_was_left_out_is_refused_rather_than_lost(store, make_rows):
    store.append(Batch(5, 0, make_rows(1)))

    with pytest.raises(ValueError, match="batch 4 of node 0 follows 5: numbers must rise"):
        store.append(Batch(4, 0, make_rows(1, first=1)))


def test_rows_of_another_node_are_refused(store, make_rows):
    with pytest.raises(ValueError, match="batch 1 of node 0 holds rows of another node"):
        store.append(Batch(1, 0, make_rows(1, node=2)))


def test_an_insert_is_one_part_so_that_it_is_there_whole_or_not_at_all(store, make_rows):
    store.append(Batch(1, 0))

    store.append(Batch(2, 0, make_rows(100_000)))

    parts = store.query(
        "SELECT table, count() AS parts, max(max_block_number) - min(min_block_number) + 1 AS blocks FROM system.parts "
        "WHERE active AND rows > 0 AND database = currentDatabase() AND table = 'slots' "
        "GROUP BY table"
    )
    assert parts.to_pylist() == [{"table": "slots", "parts": 1, "blocks": 1}]


def test_of_texts_of_one_number_the_newest_of_a_batch_is_kept_with_its_batch(store, make_names):
    store.append(Batch(1, 0, b"", make_names("old", "kept")))

    store.append(Batch(2, 0, b"", (*make_names("older"), *make_names("new"), Payload(0, 7, STACK, 2**63, "1 0"))))

    assert store.query("SELECT batch, kind, id, text FROM payloads ORDER BY batch, kind, id").to_pylist() == [
        {"batch": 1, "kind": NAME, "id": 0, "text": "old"},
        {"batch": 1, "kind": NAME, "id": 1, "text": "kept"},
        {"batch": 2, "kind": NAME, "id": 0, "text": "new"},
        {"batch": 2, "kind": STACK, "id": 2**63, "text": "1 0"},
    ]


def test_long_and_odd_texts_come_back(store, make_names):
    texts = ("", "é€\U0001f600", "tab\tquote'\\\n", "x" * 70_000)

    store.append(Batch(1, 0, b"", make_names(*texts)))

    assert store.query("SELECT text FROM payloads ORDER BY id").column(0).to_pylist() == list(texts)


def test_a_query_takes_parameters(store, make_rows):
    store.append(Batch(1, 0, make_rows(4)))

    found = store.query(
        "SELECT commit FROM slots WHERE commit >= {least:UInt64} AND toString(process) = {process:String}",
        {"least": 2, "process": "7"},
    )

    assert sorted(found.column(0).to_pylist()) == [2, 3]


def test_an_empty_answer_keeps_its_columns(store):
    found = store.query("SELECT commit, name FROM slots")

    assert (found.num_rows, found.column_names) == (0, ["commit", "name"])


def test_a_table_outlives_the_answer_it_was_read_from(store, make_rows):
    store.append(Batch(1, 0, make_rows(50_000)))

    tables = [store.query("SELECT commit FROM slots ORDER BY commit") for _ in range(5)]
    gc.collect()

    assert [table.column(0).to_numpy().sum() for table in tables] == [1_249_975_000] * 5


def test_a_bad_query_gives_the_engines_words(store):
    with pytest.raises(StoreError, match="nonsense"):
        store.query("SELECT nonsense FROM slots")


def test_migrating_again_changes_nothing(store, make_rows, contents):
    store.append(Batch(1, 0, make_rows(3)))
    before = contents(store)

    store.migrate()

    assert contents(store) == before
    assert store.query("SELECT count() FROM migrations").column(0).to_pylist() == [1]


def test_threads_may_ask_while_another_one_appends(store, make_rows):
    def append_all():
        for number in range(1, 11):
            store.append(Batch(number, 0, make_rows(100, first=100 * number)))

    with ThreadPoolExecutor(3) as threads:
        appending = threads.submit(append_all)
        asked = [threads.submit(store.query, "SELECT count() FROM slots") for _ in range(30)]
        seen = [answer.result().column(0)[0].as_py() for answer in asked]
        appending.result()

    assert {count % 100 for count in seen} == {0}
    assert store.query("SELECT count() FROM slots").column(0).to_pylist() == [1_000]
