"""Evaluations that count samples twice."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.evaluation_duplicates import EvaluationDuplicates
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import HEALTHY, READING, VALIDATE


def found_in(reading):
    return list(EvaluationDuplicates().examine(reading.facts()))


def test_names_the_evaluation_and_how_much_is_counted_twice():
    found = found_in(replace(READING, evaluated=(49, 25)))

    assert [named(f) for f in found] == [
        Named("evaluation-duplicates", "warning", (0, 1), True, "evaluation",
              "evaluation of Pictures (DistributedSampler)", VALIDATE, None)
    ]  # fmt: skip
    assert found[0].first_step == 40
    assert evidence_of(found) == {
        "samples that all ranks read in one evaluation": 50,
        "samples of the dataset": 49,
        "share that is counted twice": pytest.approx(1 / 49),
    }


def test_one_sample_of_a_thousand_is_a_remark():
    assert [f.severity for f in found_in(replace(READING, evaluated=(999, 500)))] == ["info"]


def test_is_silent_where_the_samples_are_even():
    assert list(EvaluationDuplicates().examine(HEALTHY["an evaluation that is split evenly"]())) == []


def test_each_rank_that_evaluates_everything_is_not_examined():
    with pytest.raises(CannotExamine, match="no evaluation that is split"):
        found_in(replace(READING, evaluated=(49, 49)))


def test_a_look_at_a_few_batches_is_not_examined():
    with pytest.raises(CannotExamine, match="no evaluation that is split"):
        found_in(replace(READING, evaluated=(490, 40)))


def test_training_may_repeat_samples():
    with pytest.raises(CannotExamine, match="no evaluation that is split"):
        found_in(READING)
