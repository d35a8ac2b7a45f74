"""Optimizers that hold what is no longer the model's."""

from dataclasses import replace

from rankscope.analysis.detectors.optimizer_stale_parameters import OptimizerStaleParameters
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import PARAMETERS, Training


def found(facts):
    return [(named(f), f.first_step) for f in OptimizerStaleParameters().examine(facts)]


def test_names_the_optimizer_that_holds_nothing_of_the_model():
    facts = made.stale()

    assert found(facts) == [
        (
            Named("optimizer-stale-parameters", "critical", (0, 1), True, "optimizer",
                  "AdamW: embed.weight, layers.0.weight, layers.0.bias and 4 more", None, None),
            0,
        )
    ]  # fmt: skip
    assert evidence_of(OptimizerStaleParameters().examine(facts)) == {
        "trainable parameters of Net that no optimizer holds and that never change": 7.0,
        "parameters of the optimizer without a gradient that no model has": 7.0,
        "trainable parameters of Net": 7.0,
    }


def test_names_parameters_that_came_into_the_model_later():
    assert found(made.added_later()) == [
        (
            Named("optimizer-stale-parameters", "warning", (0, 1), True, "optimizer", "extra.weight", None, None),
            0,
        )
    ]


def test_is_silent_where_the_model_follows_master_weights():
    assert found(made.stale(followed=True)) == []


def test_is_silent_where_an_image_is_optimised():
    assert found(made.stale(gradient=1)) == []


def test_only_remarks_on_a_backbone_that_was_left_out():
    parameters = (replace(PARAMETERS[0], group=""), *PARAMETERS[1:])

    remarks = list(OptimizerStaleParameters().examine(Training(parameters=parameters).facts()))

    assert [(f.severity, f.component) for f in remarks] == [("info", "embed.weight")]
