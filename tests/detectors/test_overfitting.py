"""Evaluation losses that go up while the training loss goes down."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.overfitting import Overfitting
from rankscope.base.finding import Location
from rankscope.records.activations import EvaluationLoss
from rankscope.testing.silent_dynamics import evaluated
from rankscope.testing.trainings import Training


def found_in(training):
    return list(Overfitting().examine(training.facts()))


def test_names_the_best_step_and_what_came_after_it():
    (found,) = found_in(evaluated(0.8))

    assert (found.severity, found.phase, found.component, found.first_step, found.title) == (
        "warning", "evaluation", "val_loss", 99, "the evaluation loss was lowest at step 99 (1.07) and has risen to "
        "1.71 since, while the training loss fell to 0.0411",
    )  # fmt: skip


def test_evaluation_losses_that_the_program_computes_count_as_well():
    def extra(w, rank, step, begin_ns):
        if step % 10 == 9:
            for batch in range(2):
                value = abs(step - 79) / 40 + 0.5 + 0.01 * batch
                w.put(EvaluationLoss, begin_ns, begin_ns, step, name="/home/user/train.py:70:evaluate", value=value)

    (found,) = found_in(replace(evaluated(0.8), extra=extra))

    assert (found.severity, found.first_step, found.component, found.location) == (
        "warning", 79, "evaluation loss", Location("/home/user/train.py", 70, "evaluate"),
    )  # fmt: skip


def test_a_small_rise_is_a_remark():
    assert [f.severity for f in found_in(evaluated(0.2))] == ["info"]


def test_labels_that_cannot_be_learned_are_a_remark():
    assert [f.severity for f in found_in(replace(evaluated(0.8), loss=lambda rank, step: 1.1 - step / 200))] == ["info"]


def test_is_silent_where_the_evaluation_loss_stays_low():
    assert found_in(evaluated(0.0)) == []


def test_is_silent_where_the_training_loss_does_not_fall_any_more():
    assert found_in(replace(evaluated(0.8), loss=lambda rank, step: 0.5)) == []


def test_a_run_without_evaluations_is_not_examined():
    with pytest.raises(CannotExamine, match="fewer than 5 evaluation losses"):
        found_in(Training())
