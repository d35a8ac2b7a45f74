"""A store of an older version keeps its data."""

import re

import pytest

from rankscope.base.errors import UserError
from rankscope.store import schema
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.migrations import MIGRATIONS, bookkeeping
from rankscope.store.store import Batch


def make_version_1(store, rows):
    """What version 1 left behind: three slots that came as batch 1 of node 0, and no rollups."""
    store._migrate("embedded", 1)
    store._insert("arrivals", b"".join(rows[i : i + 72] + b"\1" + bytes(7) for i in range(0, len(rows), 72)))
    store.execute("INSERT INTO batches SELECT 1, 0, 3, 0, now64(3)")


def test_a_store_of_version_1_is_brought_up_to_date_and_keeps_its_rows(tmp_path, make_rows, contents):
    with EmbeddedStore(tmp_path) as store:
        make_version_1(store, make_rows(3))
        assert store.query("SELECT name FROM system.tables WHERE name LIKE '%rollup%'").num_rows == 0

        store.migrate()
        store.append(Batch(2, 0, make_rows(4, first=3)))

        assert store.query("SELECT DISTINCT version FROM migrations ORDER BY 1").column(0).to_pylist() == [1, 2]
        assert contents(store) == {
            "commits": [0, 1, 2, 3, 4, 5, 6],
            "texts": [],
            "acknowledged": [1, 2],
            "step_calls": 7,
            "minute_calls": 7,
        }


@pytest.mark.parametrize("done", [2, 8])
def test_a_migration_that_was_cut_short_is_finished_by_the_next_one(done, embedded, make_rows, contents):
    embedded.append(Batch(1, 0, make_rows(3)))
    embedded.execute("ALTER TABLE migrations DELETE WHERE version = 2 SETTINGS mutations_sync = 2")
    for sql in schema.rollups("embedded")[:done]:
        embedded.execute(sql)

    embedded.migrate()

    held = contents(embedded)
    assert (held["step_calls"], held["minute_calls"]) == (3, 3)


def test_a_newer_store_is_refused_with_what_to_do(embedded):
    embedded.execute("INSERT INTO migrations SELECT 99, 0, now64(3)")

    with pytest.raises(UserError, match="the store has schema version 99, this rankscope knows 2: update rankscope"):
        embedded.migrate()


def test_views_are_made_anew_when_their_text_changes(embedded, monkeypatch):
    monkeypatch.setattr(schema, "views", lambda: ["CREATE OR REPLACE VIEW step AS SELECT 1 AS changed"])

    embedded.migrate()

    assert embedded.query("SELECT * FROM step").column_names == ["changed"]


def test_profiles_differ_in_the_engine_clauses_only():
    def ddl(profile):
        tables = [bookkeeping(profile)] + [sql for _, statements in MIGRATIONS for sql in statements(profile)]
        return [schema.database("rankscope", profile), *tables]

    def without_engines(profile):
        return [re.sub(r"ENGINE = \w+(\(.*\))?", "ENGINE", sql) for sql in ddl(profile)]

    assert without_engines("embedded") == without_engines("server") == without_engines("cluster")
    assert [sql for sql in ddl("cluster") if "MergeTree" in sql and "Replicated" not in sql] == []


def test_an_unknown_profile_is_refused(embedded, clickhouse):
    with pytest.raises(ValueError, match="has the profile 'embedded', not 'cluster'"):
        embedded.migrate("cluster")
    with pytest.raises(ValueError, match="no store profile 'huge'; use one of embedded, server, cluster"):
        clickhouse.migrate("huge")
