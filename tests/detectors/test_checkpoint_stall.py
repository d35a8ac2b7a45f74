"""Saving that stops the run."""

import pytest

from rankscope.analysis.detectors.checkpoint_stall import CheckpointStall
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import known_run

SAVE = "/home/user/train.py:61:save_checkpoint"


def test_names_the_function_that_saves_its_flush_included():
    run = known_run("checkpoints on rank 0")

    assert found_by(CheckpointStall, run) == [
        Named("checkpoint-stall", "warning", (0,), False, "checkpoint", "save_checkpoint", SAVE,
              pytest.approx(0.3324, abs=0.001))
    ]  # fmt: skip
    assert evidence_of(CheckpointStall().examine(run.facts)) == {
        "steps with writing checkpoints": 4,
        "longest writing checkpoints in one step": pytest.approx(500, abs=0.1),
        "of the run is charged to it: the other ranks wait meanwhile": pytest.approx(0.3324, abs=0.001),
    }


def test_names_the_rank_that_saves_where_others_wait_in_a_barrier():
    assert found_by(CheckpointStall, known_run("checkpoints with a barrier")) == [
        Named("checkpoint-stall", "warning", (0,), False, "checkpoint", "save_checkpoint", SAVE,
              pytest.approx(0.3323, abs=0.001))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["two ranks", "a small checkpoint", "one checkpoint", "evaluation on rank 0", "histograms on rank 0"]
)
def test_is_silent_where_saving_costs_little_or_something_else_stops_the_run(name):
    assert found_by(CheckpointStall, known_run(name)) == []
