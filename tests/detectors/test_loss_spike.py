"""Losses that jump."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.loss_spike import LossSpike
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import jumped
from rankscope.testing.trainings import Training


def found_in(training):
    return list(LossSpike().examine(training.facts()))


def test_names_the_step_and_that_the_loss_stayed_up():
    (found,) = found_in(jumped(9.0))

    assert (found.severity, found.component, found.first_step, found.title) == (
        "warning", "loss", 40, "the loss jumps from 0.552 to 9 at step 40 and did not come back",
    )  # fmt: skip
    assert evidence_of([found]) == {
        "loss at the spike": 9.0,
        "median of the 15 steps before": pytest.approx(0.552, abs=1e-3),
        "standard deviation of the loss around it": pytest.approx(0.063, abs=1e-3),
        "spikes": 1.0,
    }


def test_a_spike_that_comes_back_is_a_remark():
    assert [(f.severity, f.title.rpartition("and ")[2]) for f in found_in(jumped(9.0, until=42))] == [
        ("info", "came back within 2 steps")
    ]


def test_is_silent_about_what_is_no_more_than_noise():
    noisy = Training(loss=lambda rank, step: 1.0 + 0.9 * ((step * 7919) % 13) / 13)

    assert found_in(noisy) == []


def test_is_silent_about_a_schedule_with_restarts():
    restarts = replace(jumped(2.0, until=55), lr=lambda step: 1e-2 if 38 <= step < 50 else 1e-4)

    assert found_in(restarts) == []


def test_a_loss_below_zero_is_not_examined():
    with pytest.raises(CannotExamine, match="below zero"):
        found_in(Training(loss=lambda rank, step: -1.0 - step))
