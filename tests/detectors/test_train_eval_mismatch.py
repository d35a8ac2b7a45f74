"""Evaluation with other inputs than training."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.train_eval_mismatch import TrainEvalMismatch
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import (
    FAULTS,
    evaluations,
    loader_batch,
    model_input,
    put_tensor,
    sampled,
    training,
    wave,
)


def found(*parts):
    return [f.title for f in TrainEvalMismatch().examine(training(*parts)())]


def test_names_the_input_and_both_its_sizes():
    (finding,) = TrainEvalMismatch().examine(FAULTS["train-eval-mismatch"]())

    assert named(finding) == Named("train-eval-mismatch", "warning", (0, 1), True, "evaluation", "Net", None, None)
    assert (finding.first_step, finding.title) == (
        10, "evaluation gets input[0] of Net 4 times smaller than training does"
    )  # fmt: skip
    assert evidence_of([finding]) == {
        "standard deviation in training": pytest.approx(1.0, abs=0.03),
        "standard deviation in evaluation": 0.25,
        "mean in training": pytest.approx(0.0, abs=0.02),
        "mean in evaluation": pytest.approx(0.45),
        "largest element in training": pytest.approx(2.6),
        "largest element in evaluation": 1.0,
        "batches of training looked at": 20.0,
        "batches of evaluation looked at": 12.0,
    }


def test_finds_it_in_the_loaders_where_the_models_inputs_lie_on_a_device():
    raw = {"mean": 120.0, "std": 255.0, "least": -535.0, "most": 663.0}

    assert found(loader_batch(), evaluations(**raw, origin=0)) == [
        "evaluation gets batch[0] of Images 255 times larger than training does"
    ]


def test_finds_inputs_that_are_shifted():
    assert found(loader_batch(), model_input(), evaluations(mean=2.0, least=-0.1, most=4.6)) == [
        "evaluation gets input[0] of Net shifted by 2 standard deviations against training"
    ]


def test_is_silent_about_augmentation():
    assert found(loader_batch(), model_input(), evaluations(mean=-0.2, std=0.7, least=-2.0, most=2.1)) == []


def test_is_silent_about_other_data_with_outliers():
    assert found(loader_batch(), model_input(), evaluations(std=2.0, least=-50.0, most=60.0)) == []


def test_is_silent_where_training_inputs_have_all_sizes_themselves():
    def noisy(writer, rank, step, at):
        if sampled(step):
            size = 10 ** wave(step, rank)
            fields = {"name": "input[0]", "origin": 1, "std": size, "least": -3 * size, "most": 3 * size}
            put_tensor(writer, rank, step, at, fields)

    assert found(loader_batch(), noisy, evaluations(std=80.0, least=-240.0, most=240.0)) == []


def test_cannot_examine_a_run_that_never_evaluates():
    with pytest.raises(CannotExamine, match="no input that was looked at both in training and in evaluation"):
        found(loader_batch(), model_input())
