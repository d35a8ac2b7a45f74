"""Probabilities where a loss wants logits."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.double_softmax import DoubleSoftmax
from rankscope.records.batch_contents import LOG_PROBABILITIES, PLAIN, PROBABILITIES, UNKNOWN
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import FAULTS, LOSS_SITE, loss, training


def found(*parts):
    return [(f.severity, f.title) for f in DoubleSoftmax().examine(training(*parts)())]


def test_names_the_loss_and_its_line_from_the_first_step_on():
    facts = FAULTS["double-softmax"]()
    (finding,) = DoubleSoftmax().examine(facts)

    assert named(finding) == Named(
        "double-softmax", "critical", (0, 1), True, "forward", "cross_entropy", LOSS_SITE, None
    )
    assert (finding.first_step, finding.title) == (
        0, "cross_entropy gets probabilities where it wants logits in main (train.py:38)"
    )  # fmt: skip
    assert evidence_of([finding]) == {
        "of 20 calls looked at had rows of such numbers": 1.0,
        "smallest element of the input of the last one": 0.0,
        "largest element": pytest.approx(0.8),
        "calls whose graph shows a softmax or sigmoid before": 20.0,
    }


def test_finds_a_sigmoid_before_a_loss_that_has_its_own():
    assert found(loss("binary_cross_entropy_with_logits", rows=PROBABILITIES, after_softmax=1)) == [
        ("critical", "binary_cross_entropy_with_logits gets probabilities where it wants logits in main (train.py:38)")
    ]


def test_finds_it_on_a_device_by_the_graph_alone():
    assert found(loss("binary_cross_entropy_with_logits", rows=UNKNOWN, after_softmax=1, known=0)) == [
        ("critical", "binary_cross_entropy_with_logits gets probabilities where it wants logits in main (train.py:38)")
    ]


def test_finds_probabilities_whose_logarithm_is_taken_by_a_log_softmax():
    assert found(loss("nll_loss", rows=LOG_PROBABILITIES, after_softmax=1)) == [
        ("critical", "nll_loss gets the logarithm of a softmax of probabilities where it wants log-probabilities in "
                     "main (train.py:38)")
    ]  # fmt: skip


def test_is_silent_about_logits_from_0_to_1_that_no_sigmoid_gave():
    assert found(loss("binary_cross_entropy_with_logits", rows=PROBABILITIES)) == []


def test_is_silent_about_log_probabilities_in_both_losses():
    assert found(loss(rows=LOG_PROBABILITIES), loss("nll_loss", rows=LOG_PROBABILITIES)) == []


def test_is_silent_about_similarities():
    assert found(loss(rows=PLAIN, least=-1.0, most=1.0)) == []


def test_is_silent_about_one_call_of_many():
    def once(writer, rank, step, at):
        if step == 3:
            loss(rows=PROBABILITIES)(writer, rank, step, at)
        else:
            loss()(writer, rank, step, at)

    assert found(once) == []


def test_cannot_examine_a_run_without_such_a_loss():
    with pytest.raises(CannotExamine, match="no loss function of torch that takes logits was called"):
        found(loss("mse_loss"), loss(grad=0, rows=PROBABILITIES))
