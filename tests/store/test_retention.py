"""Pruning takes the oldest slots and nothing else."""

import numpy as np

from rankscope.store.retention import prune
from rankscope.store.store import Batch


def test_age_is_counted_from_the_newest_slot_of_each_node(store, make_rows, make_names, contents):
    store.append(Batch(1, 0, make_rows(10), make_names("a")))
    # The clock of node 1 stands elsewhere.
    store.append(Batch(1, 1, make_rows(10, first=5000, node=1)))

    deleted = prune(store, max_age_s=0.003)

    assert deleted == 12
    assert contents(store) == {
        "commits": [6, 7, 8, 9, 5006, 5007, 5008, 5009],
        "texts": ["a"],
        "acknowledged": [1, 1],
    }


def test_size_takes_the_oldest_first_until_the_rest_fits(store, make_rows):
    noise = np.random.default_rng(0).integers(0, 2**62, 20_000)
    store.append(Batch(1, 0, make_rows(20_000, a=noise, b=noise)))
    size = (
        "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase() AND table = 'slots'"
    )
    before = store.query(size).column(0)[0].as_py()

    deleted = prune(store, max_bytes=before // 2)

    left = store.query("SELECT commit FROM slots ORDER BY commit").column(0).to_pylist()
    assert left == list(range(deleted, 20_000))
    assert store.query(size).column(0)[0].as_py() <= before // 2


def test_a_store_within_its_limits_or_empty_is_left_alone(store, make_rows):
    assert prune(store, max_age_s=1, max_bytes=1) == 0

    store.append(Batch(1, 0, make_rows(10)))

    assert prune(store, max_age_s=1, max_bytes=10**9) == 0
