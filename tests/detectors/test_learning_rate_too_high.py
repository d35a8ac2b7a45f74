"""Steps that throw the weights about."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.learning_rate_too_high import LearningRateTooHigh
from rankscope.analysis.engine import examine
from rankscope.base.finding import Location
from rankscope.records.training import Forward
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import exploding, too_high
from rankscope.testing.silent_wiring import reuse
from rankscope.testing.trainings import MS, Training


def found_in(training):
    return list(LearningRateTooHigh().examine(training.facts()))


def test_names_rate_update_and_what_became_of_the_loss():
    (found,) = found_in(too_high())

    assert (found.severity, found.ranks, found.all_ranks, found.component, found.location, found.first_step) == (
        "warning", (0, 1), True, "layers.0.weight", Location("/home/user/train.py", 40, "main"), 0,
    )  # fmt: skip
    assert found.title == (
        "the learning rate 5 changes the weights by 50 % in a step: the loss was 2.4 before the first step, and ends "
        "at 2.3"
    )
    assert evidence_of([found]) == {
        "update per weight, median of the layers": pytest.approx(0.5),
        "update per weight of layers.0.weight": pytest.approx(0.5),
        "loss before the first update": 2.4,
        "highest loss since": pytest.approx(19.4, abs=0.1),
        "loss at the end": 2.3,
        "gradients have grown since the first step": pytest.approx(5),
        "learning rate": 5.0,
    }


def test_a_loss_that_is_lost_is_critical():
    lost = replace(too_high(), loss=lambda rank, step: 2.4 * 3.0**step if step < 20 else float("nan"))

    assert [(f.severity, f.title.rpartition("and ")[2]) for f in found_in(lost)] == [("critical", "is not a number")]


def test_a_rate_that_jumps_between_two_looks_is_held_against_what_follows():
    training = Training(
        lr=lambda step: 1e-3 if step < 40 else 1.0,
        loss=lambda rank, step: 2.4 * 0.95**step + 0.1 if step < 41 else 2.5,
    )

    assert [(f.first_step, f.title) for f in found_in(training)] == [
        (40, "the learning rate 1 had risen from 0.001 by step 40: the loss was 2.5 before the first step, and ends at "
             "2.5"),
    ]  # fmt: skip


def test_is_silent_where_large_steps_learn():
    assert found_in(too_high(recovers=True)) == []


def test_is_silent_where_a_loss_stays_flat_under_large_steps():
    # Labels that cannot be learned, in a small network with Adam: the loss goes nowhere, not up.
    assert found_in(replace(too_high(), loss=lambda rank, step: 2.303)) == []


def test_is_silent_where_only_biases_and_layers_that_begin_at_zero_have_large_updates():
    def weight(rank, step, p):
        if len(p.shape) == 1 or p.path == "head.weight":
            return {"rms": 0.0 if step == 0 else 1e-3, "update": 1e-3}
        return {"update": 1e-4}

    assert found_in(replace(too_high(), weight=weight)) == []


def test_is_silent_where_gradients_exploded_before_the_updates_were_large():
    assert found_in(exploding()) == []


def acting(w, rank, step, begin_ns):
    """A call of the model on one sample before each step."""
    w.put(Forward, begin_ns, begin_ns + MS // 100, step, name="Net", elements=4, model="Net", training=1, grad=0)


@pytest.mark.parametrize("extra", [acting])
def test_is_silent_about_a_policy_whose_loss_goes_up(extra):
    assert found_in(replace(too_high(), extra=extra)) == []


def test_follows_from_gradients_that_are_never_cleared():
    never_cleared, constant = reuse(lambda step: 2), too_high().extra

    def extra(writer, rank, step, begin_ns):
        never_cleared(writer, rank, step, begin_ns)
        constant(writer, rank, step, begin_ns)

    training = replace(too_high(), extra=extra)

    found = [f for f in examine(training.facts()).findings if f.severity != "info"]

    assert [f.cause for f in found] == ["missing-zero-grad", "learning-rate-too-high"]
    assert found[0].explains == (found[1].id,)


def test_is_silent_on_a_healthy_training():
    assert found_in(Training()) == []
