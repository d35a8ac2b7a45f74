"""A store of an older version keeps its data."""

import re

import pytest

from rankscope.base.errors import UserError
from rankscope.store import schema
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.migrations import MIGRATIONS, bookkeeping
from rankscope.store.store import Batch

KEPT = ("batches", "migrations", "payloads", "slots")

VERSION_1 = (
    "CREATE TABLE arrivals AS slots ENGINE = Null",
    "CREATE MATERIALIZED VIEW arrivals_to_slots TO slots AS SELECT * FROM arrivals",
    "CREATE VIEW names AS SELECT node, process, id, argMax(text, batch) AS text FROM payloads GROUP BY ALL",
    "CREATE VIEW `step` AS SELECT s.step AS step FROM slots AS s WHERE s.kind = 1",
)
VERSION_2 = (
    *VERSION_1,
    "CREATE TABLE rollup_step (node UInt16, step UInt32, calls SimpleAggregateFunction(sum, UInt64)) "
    "ENGINE = AggregatingMergeTree ORDER BY (node, step)",
    "CREATE MATERIALIZED VIEW arrivals_to_rollup_step TO rollup_step AS "
    "SELECT node, step, count() AS calls FROM arrivals GROUP BY node, step",
    "CREATE VIEW step_totals AS SELECT node, step, sum(calls) AS calls FROM rollup_step GROUP BY node, step",
)


def make_old(store, version, rows):
    """What an older version left behind: three slots that came as batch 1 of node 0."""
    for sql in (bookkeeping("embedded"), *schema.tables("embedded"), *(VERSION_1 if version == 1 else VERSION_2)):
        store.execute(sql)
    for number in range(1, version + 1):
        store.execute(f"INSERT INTO migrations SELECT {number}, 77, now64(3)")
    store._insert("arrivals", b"".join(rows[i : i + 72] + b"\1" + bytes(7) for i in range(0, len(rows), 72)))
    store.execute("INSERT INTO batches SELECT 1, 0, 3, 0, now64(3)")


def tables(store):
    names = "SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name"
    return tuple(store.query(names).column(0).to_pylist())


def test_a_new_store_has_the_tables_and_nothing_else(embedded):
    assert tables(embedded) == KEPT


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_is_brought_up_to_date_and_keeps_its_rows(version, tmp_path, make_rows, contents):
    with EmbeddedStore(tmp_path) as store:
        make_old(store, version, make_rows(3))

    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        store.append(Batch(2, 0, make_rows(4, first=3)))

        assert tables(store) == KEPT
        assert store.query("SELECT max(version) FROM migrations").column(0).to_pylist() == [3]
        assert contents(store) == {"commits": [0, 1, 2, 3, 4, 5, 6], "texts": [], "acknowledged": [1, 2]}


@pytest.mark.parametrize("done", [1, 30])
def test_a_migration_that_was_cut_short_is_finished_by_the_next_one(done, tmp_path, make_rows, contents):
    with EmbeddedStore(tmp_path) as store:
        make_old(store, 2, make_rows(3))
        for sql in schema.without_views("embedded")[:done]:
            store.execute(sql)

        store.migrate()

        assert tables(store) == KEPT
        assert contents(store)["commits"] == [0, 1, 2]


def test_a_newer_store_is_refused_with_what_to_do(embedded):
    embedded.execute("INSERT INTO migrations SELECT 99, 0, now64(3)")

    with pytest.raises(UserError, match="the store has schema version 99, this rankscope knows 3: update rankscope"):
        embedded.migrate()


def test_profiles_differ_in_the_engine_clauses_only():
    def ddl(profile):
        later = [sql for _, statements in MIGRATIONS for sql in statements(profile)]
        return [schema.database("rankscope", profile), bookkeeping(profile), *schema.tables(profile), *later]

    def without_engines(profile):
        return [re.sub(r"ENGINE = \w+(\(.*\))?", "ENGINE", sql) for sql in ddl(profile)]

    assert without_engines("embedded") == without_engines("server") == without_engines("cluster")
    assert [sql for sql in ddl("cluster") if "MergeTree" in sql and "Replicated" not in sql] == []


def test_an_unknown_profile_is_refused(embedded, clickhouse):
    with pytest.raises(ValueError, match="has the profile 'embedded', not 'cluster'"):
        embedded.migrate("cluster")
    with pytest.raises(ValueError, match="no store profile 'huge'; use one of embedded, server, cluster"):
        clickhouse.migrate("huge")
