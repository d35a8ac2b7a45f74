"""Evaluation that others wait for."""

import pytest

from rankscope.analysis.detectors.evaluation_stall import EvaluationStall
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import known_run


def test_names_the_rank_that_evaluates_its_metric_included():
    run = known_run("evaluation on rank 0")

    found = found_by(EvaluationStall, run)

    assert [f._replace(place=None) for f in found] == [
        Named("evaluation-stall", "warning", (0,), False, "evaluation", "validate", None,
              pytest.approx(0.3047, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(EvaluationStall().examine(run.facts))
    assert shown["longest evaluating in one step"] == pytest.approx(440, abs=0.1)


@pytest.mark.parametrize(
    "name", ["two ranks", "evaluation shared by all ranks", "checkpoints on rank 0", "histograms on rank 0"]
)
def test_is_silent_where_all_evaluate_alike_or_something_else_stops_the_run(name):
    assert found_by(EvaluationStall, known_run(name)) == []
