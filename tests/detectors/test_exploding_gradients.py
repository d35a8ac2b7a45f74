"""Gradients that grow until the training is lost."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.exploding_gradients import ExplodingGradients
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import exploding, exploding_forward, too_high
from rankscope.testing.trainings import Training


def found_in(training):
    return list(ExplodingGradients().examine(training.facts()))


def test_names_the_step_at_which_gradients_became_a_thousandfold():
    (found,) = found_in(exploding())

    assert (found.severity, found.ranks, found.all_ranks, found.component, found.first_step) == (
        "critical", (0, 1), True, "layers.0.weight", 32,
    )  # fmt: skip
    assert found.title == (
        "gradients become 1e+03 times larger than before, most in layers.0.weight: the loss was 2 before the first "
        "update, and ends at 40"
    )
    assert evidence_of([found]) == {
        "layers.0.weight: gradient per weight at step 32": pytest.approx(100),
        "change of the loss for one of a layer's weights, both relative, at first": pytest.approx(0.256, abs=1e-3),
        "gradients have grown since the first steps": pytest.approx(1000),
        "loss before the first update": 2.0,
        "loss at the end": 40.0,
    }


def test_names_outputs_that_grow_through_the_network():
    (found,) = found_in(exploding_forward())

    assert (found.first_step, found.title.partition(",")[0]) == (
        0, "outputs grow 1e+11 times on their way through the network"
    )  # fmt: skip


def test_names_a_network_that_was_made_so_also_where_the_loss_falls():
    def gradient(rank, step, p):
        return {"rms": 1e9}

    falling = replace(
        exploding_forward(), loss=lambda rank, step: 1e9 * 0.9**step, gradient=gradient, raw_gradient=gradient
    )

    assert [(f.severity, f.first_step) for f in found_in(falling)] == [("warning", 0)]


def test_is_silent_where_the_program_clips_what_exploded():
    base = exploding()
    clipped = replace(base, gradient=lambda rank, step, p: {}, loss=Training().loss)

    assert found_in(clipped) == []


def test_is_silent_where_updates_were_too_large_first():
    assert found_in(too_high()) == []


def test_is_silent_on_a_healthy_training():
    assert found_in(Training()) == []
