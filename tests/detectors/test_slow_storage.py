"""Loaders that wait for a disk or a network."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.slow_storage import SlowStorage
from rankscope.testing.checks import Named, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.loader import Loader

READ = "/home/user/data.py:52:ShardReader.read_sample"


def test_names_the_function_that_reads_in_the_workers():
    assert found_by(SlowStorage, known_run("workers read from a slow disk")) == [
        Named("slow-storage", "warning", (0, 1), True, "data", "ShardReader.read_sample", READ,
              pytest.approx(0.334, abs=0.001))
    ]  # fmt: skip


def test_names_the_function_that_reads_on_the_rank():
    assert found_by(SlowStorage, known_run("rank reads from a slow disk")) == [
        Named("slow-storage", "warning", (0, 1), True, "data", "ShardReader.read_sample", READ,
              pytest.approx(0.289, abs=0.001))
    ]  # fmt: skip


def test_knows_a_cold_cache_by_its_first_reads():
    run = replace(BASE, loader=Loader(lambda r, b: 250.0 if b < 60 else 50.0, workers=2, cpu_share=0.05)).build()

    assert [(f.cause, f.ranks) for f in found_by(SlowStorage, run)] == [("slow-storage", (0, 1))]


@pytest.mark.parametrize("name", ["two ranks", "too few workers", "slow transform on the rank itself"])
def test_is_silent_where_fetches_compute(name):
    assert found_by(SlowStorage, known_run(name)) == []


def test_is_silent_where_workers_wait_but_the_step_does_not():
    run = replace(BASE, loader=Loader(90.0, workers=2, cpu_share=0.05)).build()

    assert found_by(SlowStorage, run) == []
