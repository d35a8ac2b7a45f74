"""Acknowledged means committed: frames reach the store once, whatever happens on the way."""

import numpy as np
import pytest

from rankscope.collector.collector import Collector
from rankscope.records.payload import NAME, Payload
from rankscope.records.rows import ROW_DTYPE
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.store import Batch, Store, StoreError
from rankscope.wire.frame import Frame, FrameError, encode
from rankscope.wire.spool import Spool


@pytest.fixture
def store(tmp_path):
    with EmbeddedStore(tmp_path / "store") as store:
        store.migrate()
        yield store


def make_frame(number, *, node=0):
    """Two slots that carry the frame's number, and one name."""
    rows = np.zeros(2, ROW_DTYPE)
    rows["commit"], rows["node"] = number, node
    return Frame(number, node, rows.tobytes(), (Payload(node, 7, NAME, number, f"name {number}"),))


def commits(store):
    return store.query("SELECT commit FROM slots ORDER BY commit").column(0).to_pylist()


class Refusing(Store):
    """Passes on as many batches as it is told, then refuses."""

    def __init__(self, store, batches):
        self.store, self.left = store, batches

    def append(self, batch):
        if self.left == 0:
            raise StoreError("no")
        self.left -= 1
        return self.store.append(batch)

    def query(self, sql, params=None):
        raise AssertionError

    def migrate(self, profile="embedded"):
        raise AssertionError


def test_an_accepted_frame_is_committed(store):
    acknowledged = Collector(store).accept(encode(make_frame(1)))

    assert acknowledged == 1
    assert commits(store) == [1, 1]
    assert store.query("SELECT text FROM payloads").column(0).to_pylist() == ["name 1"]


def test_a_frame_that_is_sent_twice_is_stored_once(store):
    collector = Collector(store)

    acknowledged = [collector.accept(encode(make_frame(n))) for n in (1, 2, 1, 2)]

    assert acknowledged == [1, 2, 2, 2]
    assert commits(store) == [1, 1, 2, 2]


def test_a_damaged_frame_is_refused_and_counted(store):
    collector = Collector(store)

    with pytest.raises(FrameError, match=r"^socket: byte 100: the frame ends early"):
        collector.accept(encode(make_frame(1))[:100], "socket")

    assert (collector.damaged, commits(store)) == (1, [])


def test_no_acknowledgement_comes_before_the_commit(store):
    with pytest.raises(StoreError):
        Collector(Refusing(store, 0)).accept(encode(make_frame(1)))


def test_draining_commits_all_in_order_and_empties_the_spool(store, tmp_path):
    spool = Spool(tmp_path / "spool")
    for number in (1, 2, 3):
        spool.put(make_frame(number))

    drained = Collector(store).drain(spool)

    assert (drained, list(spool.pending()), spool.next_number) == (3, [], 4)
    assert commits(store) == [1, 1, 2, 2, 3, 3]


def test_what_the_store_refuses_stays_in_the_spool(store, tmp_path):
    spool = Spool(tmp_path / "spool")
    for number in (1, 2, 3):
        spool.put(make_frame(number))

    with pytest.raises(StoreError):
        Collector(Refusing(store, 1)).drain(spool)
    left = [number for number, _ in spool.pending()]
    Collector(store).drain(spool)

    assert left == [2, 3]
    assert commits(store) == [1, 1, 2, 2, 3, 3]


def test_a_crash_between_commit_and_forgetting_stores_nothing_twice(store, tmp_path):
    spool = Spool(tmp_path / "spool")
    frame = make_frame(1)
    spool.put(frame)
    store.append(Batch(frame.number, frame.node, frame.rows, frame.payloads))

    drained = Collector(store).drain(spool)

    assert (drained, list(spool.pending())) == (1, [])
    assert commits(store) == [1, 1]


def test_damaged_frames_are_counted_and_do_not_stop_the_others(store, tmp_path):
    spool = Spool(tmp_path / "spool")
    for number in (1, 2, 3):
        spool.put(make_frame(number))
    (tmp_path / "spool" / "0000000002.frame").write_bytes(b"garbage")

    collector = Collector(store)
    drained = collector.drain(spool)

    assert (drained, collector.damaged, spool.damaged) == (2, 1, 1)
    assert commits(store) == [1, 1, 3, 3]


def test_a_frame_that_no_store_could_take_is_set_aside(store, tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.put(Frame(1, 5, make_frame(1, node=4).rows))
    spool.put(make_frame(2))

    collector = Collector(store)
    drained = collector.drain(spool)

    assert (drained, collector.damaged, list(spool.pending())) == (1, 1, [])
    assert (tmp_path / "spool" / "0000000001.damaged").exists()
    assert commits(store) == [2, 2]
