"""Who is blamed where ranks stop: made-up ranks that call, wait and end."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rankscope.analysis.facts import Facts
from rankscope.analysis.hangs import blame
from rankscope.analysis.tables import make_tables
from rankscope.records.collective import Collective
from rankscope.records.host import CaughtException, Counter, Goodbye, ProcessEnd, StackSample
from rankscope.records.loading import BatchWait
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Step
from rankscope.testing.writer import Writer

MS, S = 1_000_000, 1_000_000_000
FILE = "/home/user/train.py"
BACKWARD = f"{FILE}:30:main"
WAIT = ("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:2900:all_reduce",)
ENGINE = ("/usr/lib/python3/dist-packages/torch/autograd/graph.py:800:_engine_run_backward",)


@dataclass
class Made:
    """One rank that trains 40 steps of 100 ms, and then does what the test says."""

    rank: int
    size: int
    writer: Writer = None
    now: int = 0
    sequences: dict = field(default_factory=dict)

    def __post_init__(self):
        self.writer = Writer(Process(100 + self.rank, rank=self.rank, world_size=self.size))
        for step in range(40):
            self.batch()
            self.call("allreduce", BACKWARD)
            if step % 10 == 9:
                self.call("allgather", f"{FILE}:40:validate")
            self.now += 100 * MS
            self.writer.put(Step, self.now - 100 * MS, self.now, step)

    def batch(self, ended=0):
        self.writer.put(BatchWait, self.now, self.now + MS, 0, name="Data", grad=1, ended=ended)

    def call(self, operation, site, group="group:default", shape="float32[10]"):
        sequence = self.sequences[group] = self.sequences.get(group, -1) + 1
        self.now += MS
        self.writer.put(
            Collective, self.now, self.now + 10_000, 40, name=operation, group=self.writer.name(group),
            sequence=sequence, site=self.writer.name(site), shape=self.writer.name(shape), bytes=40,
        )  # fmt: skip

    def stand(self, seconds, *frames, below=ENGINE, asleep=True):
        """Stack samples, and nothing else."""
        for i in range(int(seconds * 20)):
            at = self.now + 50 * MS * (i + 1)
            cpu = 0 if asleep else at
            self.writer.put(
                StackSample, at, at, 40, phase="", stack=self.writer.stack((f"{FILE}:90:<module>", *frames, *below)),
                cpu_ns=cpu, late_ns=100_000, state=ord("S" if asleep else "R"), delay_known=1, eager=1,
            )  # fmt: skip
        self.now += int(seconds * S)

    def end(self, *, code=0, signal=0, exception="", place=""):
        clean = not signal
        if clean:
            self.writer.put(
                Goodbye, self.now, self.now, 40, place=place, exception=self.writer.name(exception) if exception else 0,
                raised_ns=self.now if exception else 0,
            )  # fmt: skip
        return (
            ProcessEnd,
            self.now,
            {"of": 100 + self.rank, "clean": int(clean), "status": code << 8 | signal, "known": 1},
        )


def judged(*ranks, ends=()):
    recorder = Writer(Process(1, role="recorder", rank=-1))
    latest = max(r.now for r in ranks)
    for kind, at, values in ends:
        recorder.put(kind, at, at, 0, **values)
    for r in ranks:
        recorder.put(Counter, latest, latest, 0, name="cpu_ns", value=0, of=100 + r.rank)
    writers = [*(r.writer for r in ranks), recorder]
    rows = np.array([row for w in writers for row in w.rows], ROW_DTYPE)
    return blame(Facts(make_tables(rows, [p for w in writers for p in w.payloads()])))


def ranks(size):
    return [Made(rank, size) for rank in range(size)]


def summary(found):
    return found and (found.cause, found.positions, found.place and found.place.line)


def test_a_healthy_end_blames_nobody():
    made = ranks(2)

    assert judged(*made, ends=[r.end() for r in made]) is None


def test_a_rank_that_works_long_while_its_peer_waits_is_not_blamed():
    first, second = ranks(2)
    first.call("barrier", f"{FILE}:60:main")
    first.stand(9, f"{FILE}:60:main", below=WAIT)
    second.stand(9, f"{FILE}:70:save", below=())

    assert judged(first, second) is None


@pytest.mark.parametrize("seconds, cause", [(2, None), (9, "missing-collective")])
def test_a_collective_that_nobody_else_calls(seconds, cause):
    first, second = ranks(2)
    first.call("allreduce", f"{FILE}:55:metric")
    first.stand(seconds, f"{FILE}:55:metric", below=WAIT)
    second.call("allreduce", BACKWARD)
    second.call("allgather", f"{FILE}:40:validate")
    second.stand(seconds, BACKWARD)
    found = judged(first, second)

    assert found is None or cause is not None


def test_the_odd_one_of_three_skipped_what_the_others_call():
    made = ranks(3)
    for r in (made[0], made[2]):
        r.call("allgather", f"{FILE}:40:validate")
        r.stand(9, f"{FILE}:40:validate", below=WAIT)
    made[1].call("allreduce", BACKWARD)
    made[1].stand(9, BACKWARD)

    assert summary(judged(*made)) == ("missing-collective", (1,), 40)


def test_a_rank_out_of_batches():
    first, second = ranks(2)
    first.batch()
    first.call("allreduce", BACKWARD)
    first.stand(9, BACKWARD)
    second.batch(ended=1)
    second.call("barrier", f"{FILE}:60:main")
    second.stand(9, f"{FILE}:60:main", below=WAIT)

    assert summary(judged(first, second)) == ("uneven-inputs", (1,), 60)


def test_a_rank_that_ends_early_with_batches_left():
    first, second = ranks(2)
    first.batch()
    first.call("allreduce", BACKWARD)
    first.stand(1, BACKWARD)
    second.now += 100 * MS
    ends = [second.end(), first.end(code=1, exception="RuntimeError: Connection closed by peer", place=BACKWARD)]

    assert summary(judged(first, second, ends=ends))[:2] == ("local-early-stop", (1,))


def test_sizes_that_differ_kill_the_smaller_one():
    made = ranks(3)
    for r in made:
        r.call("allreduce", f"{FILE}:50:count", shape=f"int64[{11 if r.rank == 2 else 12}]")
        r.stand(0.2, f"{FILE}:50:count", below=WAIT)
    ends = [made[2].end(signal=6)]
    ends += [r.end(code=1, exception="RuntimeError: Connection reset by peer") for r in made[:2]]

    assert summary(judged(*made, ends=ends)) == ("collective-shape-mismatch", (2,), 50)


@pytest.mark.parametrize(
    "how, cause",
    [
        ({"signal": 9}, "dead-rank"),
        ({"code": 9}, "dead-rank"),
        ({"code": 1, "exception": "ValueError: bad sample", "place": f"{FILE}:20:parse"}, "rank-exception"),
        (
            {"code": 1, "exception": "RuntimeError: Expected to have finished reduction in the prior iteration"},
            "unused-parameters",
        ),
        ({"code": 1, "exception": "DistNetworkError: EADDRINUSE port: 29500"}, "rendezvous-failure"),
    ],
)
def test_the_first_end_of_its_own_is_the_root(how, cause):
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(0.5, BACKWARD)
    ends = [second.end(**how), first.end(code=1, exception="RuntimeError: Connection closed by peer", place=BACKWARD)]

    found = judged(first, second, ends=ends)
    assert (found.cause, found.positions) == (cause, (1,))


def test_an_exception_that_was_caught_before_a_call_of_its_own():
    made = ranks(3)
    for r in (made[0], made[2]):
        r.call("allgather", f"{FILE}:40:validate")
        r.stand(9, f"{FILE}:40:validate", below=WAIT)
    one = made[1]
    one.now += MS
    one.writer.put(
        CaughtException, one.now, one.now, 40, name="ValueError: no score", site=one.writer.name(f"{FILE}:21:judge")
    )
    one.call("allreduce", f"{FILE}:63:main")
    one.stand(9, f"{FILE}:63:main", below=WAIT)

    assert summary(judged(*made)) == ("rank-exception", (1,), 21)


def test_two_groups_that_wait_for_each_other():
    pair = "group:1|0,1"
    made = [Made(rank, 4) for rank in range(4)]
    for step in range(5):
        for r in made:
            if r.rank < 2:
                r.call("alltoall_base", f"{FILE}:44:exchange", group=pair)
            r.call("allreduce", f"{FILE}:50:sync")
            r.now += 100 * MS
            r.writer.put(Step, r.now - 100 * MS, r.now, 40 + step)
    made[0].call("alltoall_base", f"{FILE}:44:exchange", group=pair)
    made[0].stand(9, f"{FILE}:44:exchange", below=WAIT)
    for r in made[1:]:
        r.call("allreduce", f"{FILE}:50:sync")
        r.stand(9, f"{FILE}:50:sync", below=WAIT)

    assert summary(judged(*made))[:2] == ("missing-collective", (1,))
