"""Reductions at every micro-batch."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.missing_no_sync import MissingNoSync
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import known_run


def test_names_the_backward_and_counts_the_reductions():
    run = known_run("accumulation without no_sync")

    assert found_by(MissingNoSync, run) == [
        Named("missing-no-sync", "warning", (0, 1), True, "communication",
              "gradient reduction in accumulation (no_sync)",
              "/home/user/train.py:45:main", pytest.approx(0.2341, abs=0.003))
    ]  # fmt: skip
    shown = evidence_of(MissingNoSync().examine(run.facts))
    assert shown["micro-batches in a step"] == 4
    assert shown["gradient reductions in a step"] == 8  # two buckets, four times


@pytest.mark.parametrize(
    "name",
    ["two ranks", "accumulation with no_sync", "a GAN with two optimizers", "slow network", "sharded parameters"],
)
def test_is_silent_where_each_reduction_is_needed(name):
    assert found_by(MissingNoSync, known_run(name)) == []


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(MissingNoSync, known_run("one process"))
