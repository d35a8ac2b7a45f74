"""Loader workers that are started again each epoch."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.loader_worker_restart import LoaderWorkerRestart
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.loader import Loader


def test_names_the_loader_and_counts_its_restarts():
    run = known_run("workers start anew each epoch")

    assert found_by(LoaderWorkerRestart, run) == [
        Named("loader-worker-restart", "warning", (0, 1), True, "data", "DataLoader workers of Words",
              "/home/user/train.py:40:main", pytest.approx(0.45, abs=0.02))
    ]  # fmt: skip
    shown = evidence_of(LoaderWorkerRestart().examine(run.facts))
    assert shown["iterators that started their workers anew"] == 16  # 8 epochs in the window, on 2 ranks
    assert shown["different worker processes"] == 40
    assert shown["a worker takes until its first fetch (median)"] == 400.0


@pytest.mark.parametrize("name", ["two ranks", "workers nearly idle, epochs", "too few workers"])
def test_is_silent_where_workers_live_on(name):
    assert found_by(LoaderWorkerRestart, known_run(name)) == []


def test_is_silent_where_new_workers_are_slow_at_every_batch():
    run = replace(BASE, loader=Loader(150.0, workers=2, epoch=50)).build()

    assert found_by(LoaderWorkerRestart, run) == []
