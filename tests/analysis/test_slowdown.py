"""What-if: how much slower than without differences, and whose they are."""

from dataclasses import replace

import pytest

from rankscope.analysis.slowdown import Slowdown, slowdown
from rankscope.testing.known_runs import BASE, known_run


def test_a_case_computed_by_hand():
    # Forward: 15, 15 and 25 ms; the median over ranks is 15. A step of 60.21 ms would take 50.21.
    found = slowdown(replace(BASE, ranks=3, forward_ms={2: 25.0}).build().facts)

    slow = pytest.approx(60.21 / 50.21, rel=1e-3)
    one = pytest.approx(1.0, abs=1e-3)
    assert found.slowdown == slow
    assert found.by_rank == {0: one, 1: one, 2: slow}
    assert found.by_phase == {
        phase: slow if phase == "forward" else one
        for phase in ("forward", "backward", "optimizer", "data", "communication", "other")
    }
    assert found.worker_share == pytest.approx(1.0, abs=1e-3)


def test_two_ranks_are_compared_with_their_mean():
    found = slowdown(replace(BASE, forward_ms={1: 25.0}).build().facts)

    assert found.slowdown == pytest.approx(60.21 / 55.21, rel=1e-3)


def test_two_slow_ranks_share_the_slowdown():
    times = {1: 25.0, 3: 35.0}
    found = slowdown(replace(BASE, ranks=5, forward_ms=times).build().facts)

    assert found.slowdown == pytest.approx(70.21 / 50.21, rel=1e-3)
    assert found.by_rank[1] == pytest.approx(60.21 / 50.21, rel=1e-3)
    assert found.by_rank[3] == pytest.approx(70.21 / 50.21, rel=1e-3)
    assert found.worker_share == pytest.approx(10 / 20, rel=1e-2)  # without rank 3, rank 1 is still 10 ms late


def test_even_ranks_are_not_slowed_down():
    found = slowdown(known_run("two ranks").facts)

    assert found.slowdown == pytest.approx(1.0, abs=1e-3)
    assert found.worker_share is None


def test_a_single_rank_has_nobody_to_compare_with():
    assert slowdown(known_run("one process").facts) == Slowdown(None, None, None, None)
