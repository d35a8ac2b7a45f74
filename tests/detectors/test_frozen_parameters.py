"""Models of which a large part cannot learn."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.frozen_parameters import FrozenParameters
from rankscope.records.inventory import Parameter
from rankscope.records.wiring import LOADED
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import PARAMETERS, Training

FROZEN = made.part(made.MATRICES, trainable=False)


def found(facts):
    return [(named(f), f.first_step) for f in FrozenParameters().examine(facts)]


def test_names_the_matrices_where_only_norms_and_biases_can_learn():
    facts = made.frozen_parameters()

    assert found(facts) == [
        (
            Named("frozen-parameters", "critical", (0, 1), True, "optimizer",
                  "embed.weight, layers.0.weight, head.weight", None, None),
            0,
        )
    ]  # fmt: skip
    assert evidence_of(FrozenParameters().examine(facts)) == {
        "elements that can learn": pytest.approx(106 / 2538),
        "frozen weight matrices": 3.0,
        "elements that came from a state dict": 0.0,
    }


def test_warns_only_where_the_loss_falls_all_the_same():
    assert [f.severity for f in FrozenParameters().examine(Training(parameters=FROZEN).facts())] == ["warning"]


def test_is_silent_where_loaded_weights_are_tuned_by_their_biases():
    facts = Training(parameters=FROZEN, extra=made.odd(LOADED, "Net", elements=2538)).facts()

    assert found(facts) == []


def test_names_a_part_that_the_optimizer_holds_and_no_gradient_reaches():
    assert found(made.cut_off()) == [
        (
            Named("frozen-parameters", "warning", (0, 1), True, "backward",
                  "embed.weight, layers.0.weight, layers.0.bias", None, None),
            0,
        )
    ]  # fmt: skip


def test_is_silent_about_a_part_without_autograd_or_with_loaded_weights():
    assert [found(made.cut_off(grad=0)), found(made.cut_off(loaded=2538))] == [[], []]


def test_is_silent_where_the_head_trains_on_a_frozen_backbone():
    backbone = made.part(("embed.weight", "layers.0.weight", "layers.0.bias"), trainable=False, group="")

    assert found(Training(parameters=backbone, loss=made.FLAT).facts()) == []


def test_is_silent_about_lora():
    lora = Parameter("layers.0.lora_A.weight", (2, 16), "float32", True, "Linear", "1.0", storage=7)
    frozen = tuple(replace(p, trainable=False, group="") for p in PARAMETERS)

    assert found(Training(parameters=(*frozen, lora), loss=made.FLAT).facts()) == []
