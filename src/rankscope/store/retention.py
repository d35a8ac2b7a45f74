"""Keep a store small: the oldest slots go first; texts and acknowledgements stay."""

from __future__ import annotations

from rankscope.store.sql_store import SqlStore

SLACK = 0.1
"""Share deleted beyond what a size limit asks for, so that the next batch does not meet the limit again."""


def prune(store: SqlStore, max_age_s: float | None = None, max_bytes: int | None = None) -> int:
    """Delete the slots older than `max_age_s`, then the oldest until about `max_bytes` are left; how many went.

    Age is measured on each node's own clock from its newest slot, as the clocks of nodes have no common zero.
    """
    deleted = 0
    if max_age_s is not None:
        deleted += _delete_older(store, int(max_age_s * 1e9))
    if max_bytes is not None:
        # More than one round where the oldest slots compress better than the rest.
        while (size := _bytes(store)) > max_bytes:
            keep = max_bytes / size * (1 - SLACK)
            gone = _delete_older(store, _age_of_share(store, keep))
            if not gone:
                break
            deleted += gone
    return deleted


def _bytes(store: SqlStore) -> int:
    table = store.query(
        "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase() AND table = 'slots'"
    )
    return int(table.column(0)[0].as_py())


_AGES = (
    "(SELECT newest - time_ns AS age FROM slots AS s "
    "INNER JOIN (SELECT node, max(time_ns) AS newest FROM slots GROUP BY node) AS n ON n.node = s.node)"
)


def _age_of_share(store: SqlStore, keep: float) -> int:
    """The age in ns below which this share of the slots is."""
    table = store.query(f"SELECT quantile({keep:.6f})(age) FROM {_AGES}")
    return int(table.column(0)[0].as_py())


def _delete_older(store: SqlStore, age_ns: int) -> int:
    newest = store.query("SELECT node, max(time_ns) AS newest FROM slots GROUP BY node").to_pylist()
    if not newest:
        return 0
    old = " OR ".join(f"(node = {row['node']} AND time_ns < {row['newest'] - age_ns})" for row in newest)
    count = int(store.query(f"SELECT count() FROM slots WHERE {old}").column(0)[0].as_py())
    if count:
        store.execute(f"ALTER TABLE slots DELETE WHERE {old} SETTINGS mutations_sync = 2")
    return count
