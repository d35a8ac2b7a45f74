"""A call of a collective that does not return."""

import torch
import torch.distributed as dist

from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config
from rankscope.recorder.ring_reader import RingReader
from rankscope.records.collective import Collective, PendingCollective


def test_a_call_is_noted_before_it_is_made(tmp_path):
    agent = observer.start(Config(ring_folders=(str(tmp_path),), budget=1.0), now_ns())
    try:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        dist.all_reduce(torch.ones(3))
        (ring,) = tmp_path.glob("*.ring")
        reader = RingReader(ring)
        (pending,) = reader.pending()
        news, _ = reader.read()
        reader.close()
    finally:
        observer.stop()
        dist.destroy_process_group()

    assert pending["kind"] == PendingCollective.code
    (done,) = (row for _, rows in news for row in rows if row["kind"] == Collective.code and row["a"] == pending["a"])
    assert [pending[word] for word in ("name", "a", "b", "c", "time_ns")] == [
        done[word] for word in ("name", "a", "b", "c", "time_ns")
    ]
    assert agent.ended
