"""Losses that stay where they began."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.loss_not_decreasing import LossNotDecreasing
from rankscope.testing.silent_dynamics import flat
from rankscope.testing.trainings import Training


def found_in(training):
    return list(LossNotDecreasing().examine(training.facts()))


def test_warns_of_a_long_training_that_only_guesses():
    (found,) = found_in(flat())

    assert (found.severity, found.all_ranks, found.component, found.first_step, found.title) == (
        "warning", True, "loss", 0, "the loss stays at 2.3 for 2100 steps, that of guessing among 10",
    )  # fmt: skip


def test_a_short_one_is_a_remark():
    assert [f.severity for f in found_in(flat(steps=150))] == ["info"]


def test_is_silent_where_the_loss_falls():
    assert found_in(flat(fall=0.2)) == []


def test_is_silent_during_a_long_warm_up():
    assert found_in(replace(flat(), lr=lambda step: 1e-9 if step < 1800 else 1e-3)) == []


def test_a_training_of_few_steps_is_not_examined():
    with pytest.raises(CannotExamine, match="fewer than 100 steps"):
        found_in(Training())
