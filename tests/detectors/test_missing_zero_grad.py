"""Gradients that nobody clears."""

import math

import pytest

from rankscope.analysis.detectors.missing_zero_grad import MissingZeroGrad
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import SITE, Training


def found(facts):
    return [(named(f), f.first_step) for f in MissingZeroGrad().examine(facts)]


def test_names_the_optimizer_and_the_line_of_the_backward_that_adds():
    assert found(made.missing_zero_grad()) == [
        (
            Named("missing-zero-grad", "critical", (0, 1), True, "backward", "AdamW: zero_grad missing", SITE, None),
            1,
        )
    ]


def test_says_how_the_gradient_grew():
    def gradient(rank, step, parameter):
        return {"norm": 2.0 * (step + 1)}

    facts = Training(extra=made.reuse(lambda step: 2), gradient=gradient).facts()

    assert evidence_of(MissingZeroGrad().examine(facts)) == {
        "watched steps whose backward added to used gradients": 1.0,
        "gradient norm at the last sampled step, by that of the first": pytest.approx(65.0),
    }


def test_is_less_sure_of_gradients_on_a_device_that_could_be_zero():
    facts = Training(extra=made.reuse(lambda step: 2, unread=1)).facts()

    assert [(f.severity, f.confidence) for f in MissingZeroGrad().examine(facts)] == [("warning", 0.75)]


def test_is_silent_where_gradients_are_cleared():
    assert found(Training(extra=made.reuse(lambda step: 0)).facts()) == []


def test_is_silent_about_a_single_step_and_about_clearing_every_other_time():
    once = Training(extra=made.reuse(lambda step: 2 * (step == 1))).facts()
    often = Training(extra=made.reuse(lambda step: 2 * (int(math.log2(step)) % 2))).facts()

    assert [found(once), found(often)] == [[], []]
