"""Garbage collections that stop ranks."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.gc_pause import GcPause
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Code
from rankscope.testing.parts import GcPause as Pause

GENERATION_2 = "Python garbage collection, generation 2"


def test_names_both_ranks_where_they_collect_in_turn():
    run = known_run("staggered garbage collections")

    assert found_by(GcPause, run) == [
        Named("gc-pause", "warning", (0, 1), True, None, GENERATION_2, "/home/user/model.py:21:Net.forward",
              pytest.approx(0.3234, abs=0.001))
    ]  # fmt: skip
    assert evidence_of(GcPause().examine(run.facts)) == {
        "long collections": 16,
        "longest collection": 120.0,
        "time in collections": pytest.approx(16 * 120 / (80 * 74.2), abs=0.001),
    }


def test_names_the_one_rank_that_collects():
    assert found_by(GcPause, known_run("garbage collections on rank 1")) == [
        Named("gc-pause", "warning", (1,), False, None, GENERATION_2, "/home/user/train.py:47:main",
              pytest.approx(0.1929, abs=0.001))
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["two ranks", "one garbage collection"])
def test_is_silent_on_healthy_runs(name):
    assert found_by(GcPause, known_run(name)) == []


def test_is_silent_where_user_code_is_slow_now_and_then():
    run = replace(BASE, parts=(Code(ms=120.0, every=10, ranks=(1,)),)).build()

    assert found_by(GcPause, run) == []


def test_is_silent_about_pauses_that_hide_behind_a_slower_peer():
    run = replace(BASE, forward_ms={0: 145.0}, parts=(Pause(ms=120.0, every=5, ranks=(1,)),)).build()

    assert found_by(GcPause, run) == []


def test_ranks_that_collect_at_the_same_moment_stop_the_run_once():
    run = replace(BASE, ranks=4, parts=(Pause(ms=150.0, every=2),)).build()

    [found] = GcPause().examine(run.facts)

    assert found.cost.share == pytest.approx(0.6, abs=0.01)  # 150 ms in each 250 ms, on all four ranks at once


@pytest.mark.parametrize("larger, ranks", [(260.0, (1,)), (150.0, (0, 1))])
def test_a_heap_that_all_ranks_have_in_common_names_none_beside_the_larger_one(larger, ranks):
    parts = (Pause(ms=130.0, every=8, ranks=(0,)), Pause(ms=larger, every=12, offset=5, ranks=(1,)))

    [found] = GcPause().examine(replace(BASE, parts=parts).build().facts)

    assert found.ranks == ranks
