"""Loader workers that are pinned to fewer cores than they need."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.worker_affinity import WorkerAffinity
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.loader import Loader


def test_names_the_mask_of_the_workers():
    run = known_run("workers on one core")

    assert found_by(WorkerAffinity, run) == [
        Named("worker-affinity", "warning", (0, 1), True, "data", "CPU affinity of the DataLoader workers",
              "/home/user/data.py:31:Words.__getitem__", pytest.approx(0.334, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(WorkerAffinity().examine(run.facts))
    assert shown["CPUs that the workers may use"] == 1
    assert shown["CPUs that the run may use"] == 8


@pytest.mark.parametrize("name", ["two ranks", "too few workers", "workers read from a slow disk"])
def test_is_silent_where_the_mask_is_as_wide_as_the_machine(name):
    assert found_by(WorkerAffinity, known_run(name)) == []


def test_is_silent_where_pinned_workers_keep_up():
    run = replace(BASE, loader=Loader(80.0, workers=4, affinity=(0,))).build()

    assert found_by(WorkerAffinity, run) == []
