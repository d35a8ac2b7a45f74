"""Steps that wait for batches because making them is slow."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.slow_data_loading import SlowDataLoading
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.loader import Loader

GETITEM = "/home/user/data.py:31:Words.__getitem__"


def test_names_the_transform_when_the_rank_makes_its_batches():
    assert found_by(SlowDataLoading, known_run("slow transform on the rank itself")) == [
        Named("slow-data-loading", "warning", (0, 1), True, "data", "Words.__getitem__", GETITEM,
              pytest.approx(0.336, abs=0.001))
    ]  # fmt: skip


def test_names_only_the_rank_whose_batches_come_late():
    assert found_by(SlowDataLoading, known_run("slow transform on rank 1")) == [
        Named("slow-data-loading", "warning", (1,), False, "data", "Words.__getitem__", GETITEM,
              pytest.approx(0.230, abs=0.001))
    ]  # fmt: skip


def test_names_the_transform_when_workers_cannot_keep_up():
    run = known_run("too few workers")

    assert found_by(SlowDataLoading, run) == [
        Named("slow-data-loading", "warning", (0, 1), True, "data", "Words.__getitem__", GETITEM,
              pytest.approx(0.334, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(SlowDataLoading().examine(run.facts))
    assert shown["a worker takes for one batch (median)"] == 150.0
    assert shown["workers of the loader"] == 2
    assert shown["of that time on a CPU"] == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "two ranks",
        "workers nearly idle",
        "workers read from a slow disk",
        "workers start anew each epoch",
        "workers on one core",
        "a neighbour on rank 1's cores",
    ],
)
def test_is_silent_where_batches_are_not_late_or_another_cause_says_why(name):
    assert found_by(SlowDataLoading, known_run(name)) == []


def test_is_silent_where_the_rank_collates_a_little_for_all_alike():
    run = replace(BASE, loader=Loader(7.0)).build()  # 12 % of the step: how small models are trained every day

    assert found_by(SlowDataLoading, run) == []


def test_is_silent_where_slow_workers_hide_behind_the_step():
    run = replace(BASE, loader=Loader(95.0, workers=2)).build()  # 47 ms a batch, the step takes 50

    assert found_by(SlowDataLoading, run) == []
