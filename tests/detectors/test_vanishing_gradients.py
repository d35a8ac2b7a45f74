"""Early layers that the gradient no longer reaches."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.vanishing_gradients import VanishingGradients
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import DEPTH, falling_by_depth, vanishing
from rankscope.testing.trainings import Training


def found_in(training):
    return list(VanishingGradients().examine(training.facts()))


def test_names_the_layers_and_what_reaches_them():
    (found,) = found_in(vanishing())

    assert (found.severity, found.ranks, found.all_ranks, found.phase, found.component, found.first_step) == (
        "warning", (0, 1), True, "backward", "layers.0.weight", 0,
    )  # fmt: skip
    assert found.title == (
        "the gradient does not reach the first 6 of 12 layers: per weight, layers.0.weight gets 1e-08 of what "
        "layers.11.weight gets"
    )
    assert evidence_of([found]) == {
        "gradient per weight, first layers beside the last ones": pytest.approx(1e-8),
        "update per weight, the same": pytest.approx(1e-8),
        "elements of sigmoids and tanhs at their ends, median": pytest.approx(0.6, abs=0.01),
        "the loss has fallen by, of its first value": pytest.approx(0.025, abs=0.001),
    }


def test_is_a_remark_where_the_last_layers_learn_well_without_the_others():
    assert [f.severity for f in found_in(vanishing(flat=False))] == ["info"]


def test_is_silent_where_adam_makes_up_for_it_and_the_loss_falls():
    assert found_in(vanishing(0.3, "AdamW", flat=False)) == []


def test_is_silent_where_a_last_layer_that_begins_at_zero_passes_nothing_back_at_first():
    def gradient(rank, step, p):
        last = p.path == f"layers.{DEPTH - 1}.weight"
        return {"rms": 0.01 if last or step > 3 else 1e-9}

    assert found_in(replace(vanishing(), gradient=gradient, raw_gradient=gradient)) == []


def test_is_silent_where_a_part_is_cut_off():
    def gradient(rank, step, p):
        return {"rms": 0.0 if int(p.path.split(".")[1]) < 4 else 0.01}

    assert found_in(replace(vanishing(), gradient=gradient, raw_gradient=gradient)) == []


def test_is_silent_where_branches_are_scaled_to_nearly_nothing():
    def gradient(rank, step, p):
        return {"rms": 1e-8 if 0 < int(p.path.split(".")[1]) < DEPTH - 1 else 0.01}

    assert found_in(replace(vanishing(), gradient=gradient, raw_gradient=gradient)) == []


def test_is_silent_where_layers_differ_by_less():
    assert found_in(replace(vanishing(), gradient=falling_by_depth(0.6), raw_gradient=falling_by_depth(0.6))) == []


def test_a_model_of_few_layers_is_not_examined():
    with pytest.raises(CannotExamine, match="no model with at least 5 layers"):
        found_in(Training())
