"""Weight decay that reaches norms in spite of groups."""

from rankscope.analysis.detectors.weight_decay_on_norm import WeightDecayOnNorm
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import PARAMETERS, Training

NORMS, BIASES = ("norm.weight", "norm.bias"), ("layers.0.bias", "head.bias")


def found(facts):
    return [(named(f), f.first_step) for f in WeightDecayOnNorm().examine(facts)]


def finding(component):
    return [(Named("weight-decay-on-norm", "warning", (0, 1), True, "optimizer", component, None, None), 0)]


def test_names_the_norms_in_the_group_with_decay():
    facts = made.decay_on_norms(NORMS, BIASES)

    assert found(facts) == finding("AdamW: norm.weight, norm.bias")
    assert evidence_of(WeightDecayOnNorm().examine(facts)) == {
        "norms or biases in groups with decay": 2.0,
        "parameters in the groups without decay": 2.0,
        "largest weight decay of a group": 0.3,
    }


def test_names_biases_that_are_not_with_the_others_of_their_kind():
    assert found(made.decay_on_norms(("head.bias",), (*NORMS, "layers.0.bias"))) == finding("AdamW: head.bias")


def test_is_silent_where_all_of_them_are_spared():
    assert found(made.decay_on_norms((), (*NORMS, *BIASES))) == []


def test_is_silent_about_one_group_for_everything():
    everything = tuple(p.path for p in PARAMETERS)

    assert found(made.decay_on_norms(everything, ())) == []


def test_is_silent_about_groups_that_differ_for_another_reason():
    backbone = ("embed.weight", "layers.0.weight", "layers.0.bias", "norm.weight", "norm.bias")

    assert found(made.decay_on_norms(backbone, ("head.weight", "head.bias"))) == []


def test_is_silent_where_no_group_has_decay():
    assert found(Training(weight_decay=(0.0, 0.0)).facts()) == []
