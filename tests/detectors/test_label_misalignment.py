"""Targets that stand elsewhere than at the next token."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.label_misalignment import LabelMisalignment
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import FAULTS, LOSS_SITE, lags, loss, training


def found(*parts):
    return [f.title for f in LabelMisalignment().examine(training(*parts)())]


def test_names_targets_that_were_shifted_twice():
    (finding,) = LabelMisalignment().examine(FAULTS["label-misalignment"]())

    assert named(finding) == Named(
        "label-misalignment", "critical", (0, 1), True, "forward", "cross_entropy", LOSS_SITE, None
    )
    assert (finding.first_step, finding.title) == (
        0,
        "targets of cross_entropy are shifted twice against the tokens: the model learns the token after the next one "
        "in main (train.py:38)",
    )
    assert evidence_of([finding]) == {
        "targets equal to the token -1 places on": pytest.approx(10 / 255),
        "targets equal to the token +0 places on": pytest.approx(10 / 255),
        "targets equal to the token +1 places on": pytest.approx(10 / 255),
        "targets equal to the token +2 places on": pytest.approx(252 / 255),
        "targets equal to the token +3 places on": pytest.approx(10 / 255),
        "targets compared": 480.0 * 20,
        "calls of the loss looked at": 20.0,
    }


def test_names_targets_of_a_causal_model_that_nobody_shifted():
    assert found(lags(same=255)) == [
        "targets of cross_entropy are not shifted against the tokens: the model may copy what it sees in main "
        "(train.py:38)"
    ]


def test_is_silent_about_targets_at_the_same_place_of_a_model_that_sees_all_tokens():
    assert found(lags(same=255, causal=0)) == []


def test_is_silent_about_the_next_token():
    assert found(lags(next=255)) == []


def test_is_silent_about_periodic_text_that_fits_several_places():
    assert found(lags(same=255, second=255)) == []


def test_is_silent_about_a_head_for_the_token_after_the_next_one():
    assert found(lags(next=255), lags(second=255, site="/home/user/train.py:39:main")) == []


def test_is_silent_about_targets_that_are_no_tokens():
    assert found(lags(same=60, next=40)) == []


def test_cannot_examine_a_run_without_tokens():
    with pytest.raises(CannotExamine, match="no targets that could be compared with input tokens"):
        found(loss())
