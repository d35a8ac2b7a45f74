"""Updates that rounding takes away."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.update_lost_to_precision import UpdateLostToPrecision
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import coarse
from rankscope.testing.trainings import Training


def found_in(training):
    return list(UpdateLostToPrecision().examine(training.facts()))


def test_names_the_share_of_weights_and_the_rounding_step():
    (found,) = found_in(coarse())

    assert (found.severity, found.ranks, found.all_ranks, found.phase, found.component, found.first_step) == (
        "critical", (0, 1), True, "optimizer", "embed.weight", 0,
    )  # fmt: skip
    assert found.title == (
        "100 % of the bfloat16 weights do not change: their updates are smaller than half a rounding step "
        "(embed.weight and 6 more)"
    )
    assert evidence_of([found]) == {
        "elements that change in a step, of these weights": 0.0,
        "bfloat16 weights with gradients whose updates are lost": 1.0,
        "embed.weight: half a rounding step at the size of its weights": 2.0**-12,  # of 0.1: 2 ** (-4 - 7) / 2
        "learning rate at its highest": 6e-7,
    }


def test_a_few_elements_near_zero_may_still_move():
    assert [f.severity for f in found_in(coarse(0.01))] == ["warning"]


def test_is_silent_where_updates_arrive():
    assert found_in(coarse(0.3, lr=lambda step: 1e-3)) == []


def test_is_silent_in_full_precision():
    training = coarse()

    assert found_in(replace(training, parameters=Training().parameters)) == []


def test_is_silent_where_norms_alone_do_not_move():
    def weight(rank, step, p):
        return {"rms": 1.0 if p.path.startswith("norm") else 0.02, "changed": 0 if p.path.startswith("norm") else 120}

    assert found_in(replace(coarse(lr=lambda step: 1e-3), weight=weight)) == []


def test_is_silent_where_updates_are_large_enough_and_not_made_at_all():
    # An optimizer that skips its parameters: another cause's.
    assert found_in(coarse(lr=lambda step: 1e-3)) == []


def test_is_silent_about_the_rows_of_a_table_that_a_batch_does_not_use():
    training = coarse()

    def gradient(rank, step, p):
        return {"zeros": 250}

    def weight(rank, step, p):
        return {"changed": 4}

    assert found_in(replace(training, gradient=gradient, weight=weight)) == []


def test_is_silent_where_only_the_end_of_a_decay_moves_nothing():
    def lr(step):
        return 1e-3 if step < 20 else 1e-9

    def weight(rank, step, p):
        return {"changed": 120 if step < 20 else 0}

    assert found_in(replace(coarse(), lr=lr, weight=weight)) == []


def test_an_optimizer_that_keeps_what_rounding_takes_away_is_not_examined():
    with pytest.raises(CannotExamine, match="keeps what rounding takes away"):
        found_in(coarse(0.01, optimizer="AdamWStochasticRounding"))
