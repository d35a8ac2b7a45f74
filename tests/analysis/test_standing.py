"""Where a rank stands whose own sampler is silent, by what the recorder saw from outside, and for how long."""

import numpy as np
import pytest

from rankscope.analysis.facts import Facts
from rankscope.analysis.hangs import blame
from rankscope.analysis.standing import silent, stalled, standing
from rankscope.analysis.tables import make_tables
from rankscope.base.outside import STOPPED
from rankscope.records.collective import Collective
from rankscope.records.host import Counter, OutsideStack, StackSample
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Step
from rankscope.testing.writer import Writer

MS, S = 1_000_000, 1_000_000_000
FILE = "/home/user/train.py"
HELD = f"{FILE}:50:tokenise"
WAIT = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:2900:all_reduce"
STEPS = 40
BEGIN = STEPS * 100 * MS
"""When nothing goes on any more."""


class Made:
    """Two ranks that train 40 steps of 100 ms; then rank 0 waits for rank 1, which does what the test says."""

    def __init__(self, seconds=12, watched=True):
        self.end = BEGIN + int(seconds * S)
        self.ranks = [Writer(Process(100 + rank, rank=rank, world_size=2)) for rank in (0, 1)]
        self.recorder = Writer(Process(1, role="recorder", rank=-1))
        for writer in self.ranks:
            for step in range(STEPS):
                self.call(writer, step, step * 100 * MS)
                writer.put(Step, step * 100 * MS, (step + 1) * 100 * MS, step)
            for at in range(0, self.end + 1, S // 2):
                if watched or at in (BEGIN, self.end):
                    self.recorder.put(Counter, at, at, 0, name="cpu_ns", value=0, of=writer.pid)
        self.call(self.ranks[0], STEPS, BEGIN)
        self.sample(0, self.end, WAIT)

    def call(self, writer, sequence, at):
        group, site, shape = writer.name("group:default"), writer.name(f"{FILE}:30:main"), writer.name("float32[10]")
        writer.put(
            Collective, at, at + 10_000, sequence, name="allreduce", group=group, sequence=sequence, site=site,
            shape=shape, bytes=40,
        )  # fmt: skip

    def sample(self, rank, until, *below):
        """Its own sampler finds it asleep."""
        writer = self.ranks[rank]
        for at in range(BEGIN + 50 * MS, until + 1, 50 * MS):
            stack = writer.stack((f"{FILE}:30:main", *below))
            writer.put(StackSample, at, at, STEPS, phase="", stack=stack, cpu_ns=0, state=ord("S"), delay_known=1)

    def look(self, rank, *frames, state="S", why="", after=6 * S, **flags):
        """The recorder looks at it from outside; `frames`: outermost first."""
        texts = tuple(reversed(frames)) or (why,)
        for depth, text in enumerate(texts):
            self.recorder.put(
                OutsideStack, BEGIN + after, BEGIN + after, 0, name=text, of=100 + rank, depth=depth, state=ord(state),
                known=int(bool(frames)), **flags,
            )  # fmt: skip
        return self

    def facts(self):
        writers = [*self.ranks, self.recorder]
        rows = np.array([row for w in writers for row in w.rows], ROW_DTYPE)
        return Facts(make_tables(rows, [p for w in writers for p in w.payloads()]))


def told(made):
    found = blame(made.facts())
    return found and (found.cause, found.positions, found.place and found.place.line, found.why)


def test_a_silent_rank_stands_where_it_was_seen_from_outside():
    where = standing(Made().look(1, f"{FILE}:30:main", HELD).facts(), 1)

    assert (where.place.line, where.blocked, where.stopped, where.holds_lock) == (50, True, False, False)


def test_samples_that_came_since_say_more_than_the_look():
    made = Made().look(1, HELD, state="T")
    made.sample(1, made.end, f"{FILE}:70:save")

    where = standing(made.facts(), 1)
    assert (where.place.line, where.stopped) == (70, False)


def test_without_a_stack_from_outside_its_last_samples_say_where():
    made = Made().look(1, state="T", why="ptrace is forbidden")
    made.sample(1, BEGIN + S, f"{FILE}:70:save")

    where = standing(made.facts(), 1)
    assert (where.place.line, where.stopped, where.why_no_stack) == (70, True, "ptrace is forbidden")


@pytest.mark.parametrize("until, expected", [(S, True), (12 * S, False)])
def test_a_rank_is_silent_when_its_last_sample_is_old(until, expected):
    made = Made()
    made.sample(1, BEGIN + until, HELD)

    assert silent(made.facts(), 1) is expected


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_rank_is_stuck_at_once(state):
    made = Made(seconds=6).look(1, f"{FILE}:30:main", HELD, state=state, after=5 * S)

    assert told(made) == ("stuck-rank", (1,), 50, STOPPED)


def test_a_rank_that_is_stopped_while_it_waits_for_its_peers_is_still_the_one():
    made = Made(seconds=6).look(1, f"{FILE}:30:main", WAIT, state="T", after=5 * S)

    assert told(made) == ("stuck-rank", (1,), 30, STOPPED)


@pytest.mark.parametrize("seconds, cause", [(8, None), (12, "stuck-rank")])
def test_a_rank_that_sleeps_with_the_interpreter_lock_is_stuck_after_ten_seconds(seconds, cause):
    found = told(Made(seconds).look(1, HELD, holds_lock=1))

    assert found == (cause and (cause, (1,), 50, "sleeps in native code and holds the interpreter lock"))


def test_a_rank_that_computes_in_native_code_is_blamed_for_nothing():
    made = Made(seconds=600).look(1, HELD, holds_lock=1, runs=1, state="R", after=590 * S)
    made.sample(1, BEGIN + S, HELD)

    assert (told(made), standing(made.facts(), 1).holds_lock) == (None, True)


def test_one_that_runs_python_code_without_a_sampler_is_not_said_to_hold_the_lock():
    made = Made().look(1, HELD, holds_lock=1, runs=1, state="R")

    assert not standing(made.facts(), 1).holds_lock


@pytest.mark.parametrize("watched, expected", [(True, (0, 1)), (False, ())])
def test_time_in_which_the_recorder_stood_still_is_no_stall(watched, expected):
    made = Made(seconds=600, watched=watched)

    assert stalled(made.facts()) == expected
