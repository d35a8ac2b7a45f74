"""The made-up runs themselves: consistent, repeatable, and honest about mistakes."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.tables import column
from rankscope.records.host import StackSample
from rankscope.records.loading import BatchWait, Fetch
from rankscope.records.training import Step
from rankscope.testing.known_runs import BASE
from rankscope.testing.loader import Loader
from rankscope.testing.parts import Code, Reduce
from rankscope.testing.runs import recoverable_share
from rankscope.testing.simulation import MS


def test_the_same_builder_gives_the_same_run():
    builder = replace(BASE, noise=0.2, loader=Loader(40.0, workers=2), parts=(Code(ms=3.0),))

    first, second = builder.build(), builder.build()

    assert np.array_equal(first.rows, second.rows)
    assert first.payloads == second.payloads


def test_another_seed_gives_another_run():
    noisy = replace(BASE, noise=0.2)

    assert not np.array_equal(noisy.build().ends, replace(noisy, seed=1).build().ends)


def test_a_step_takes_what_its_parts_take():
    # 0.3 data, 15 forward, 30 backward, 4 optimizer, 3 x 0.03 loop, 0.8 transfer, 2 + 20 + 2 us for two calls.
    steps = np.diff(BASE.build().ends[0])

    assert set(steps.tolist()) == {50_214_000}


def test_ranks_leave_a_reduction_together_and_not_before_the_last_has_come():
    ends = replace(BASE, forward_ms={1: 40.0}).build().ends

    assert (ends[0] == ends[1]).all()
    assert set(np.diff(ends[0]).tolist()) == {75_214_000}


def test_a_late_start_of_one_rank_is_waited_for():
    ends = replace(BASE, start_ms={0: 100.0, 1: 700.0}).build().ends

    assert (ends[0] == ends[1]).all()


def test_workers_make_batches_ahead():
    quick, slow = (replace(BASE, loader=Loader(ms, workers=2)).build() for ms in (90.0, 150.0))

    waits = [run.tables.of(BatchWait)["duration_ns"][-48:].mean() / MS for run in (quick, slow)]

    assert waits == [0.15, pytest.approx(75 - 49.914, abs=0.3)]  # 150 ms a batch of two workers, less the other work
    assert len(slow.facts.ranks[0].workers) == 2
    assert np.median(slow.tables.of(Fetch)["duration_ns"]) == 150 * MS


def test_samples_come_about_20_times_a_second_and_their_cpu_time_never_falls():
    run = BASE.build()
    rows = run.tables.of(StackSample)
    rows = rows[rows["process"] == 1000]

    gaps = np.diff(rows["time_ns"]) / MS

    assert 50 <= gaps.min() <= gaps.max() <= 58
    assert (np.diff(column(rows, StackSample, "cpu_ns")) >= 0).all()


def test_steps_are_numbered_by_what_was_finished():
    rows = BASE.build().tables.of(Step)

    assert rows["step"][rows["process"] == 1000].tolist() == list(range(100))


def test_the_gain_of_a_repair_is_known():
    slow = replace(BASE, parts=(Code(ms=50.214, ranks=(1,)),)).build()

    assert recoverable_share(slow, BASE.build()) == pytest.approx(0.5, abs=1e-6)


def test_a_part_at_an_unknown_place_is_a_mistake():
    with pytest.raises(ValueError, match="a part cannot be at 'somewhere': use one of start, before-data"):
        replace(BASE, parts=(Code(at="somewhere"),)).build()


def test_ranks_that_would_wait_for_ever_are_a_mistake():
    with pytest.raises(AssertionError, match="the made-up ranks wait for each other"):
        replace(BASE, parts=(Reduce(ranks=(0,)),)).build()
