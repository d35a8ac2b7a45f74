"""Weights that began as one and became two."""

from dataclasses import replace

from rankscope.analysis.detectors.tied_weights_broken import TiedWeightsBroken
from rankscope.analysis.facts import Facts
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, named
from rankscope.testing.trainings import Training


def found(facts):
    return [(named(f), f.first_step) for f in TiedWeightsBroken().examine(facts)]


def finding(component, step):
    return [(Named("tied-weights-broken", "warning", (0, 1), True, "optimizer", component, None, None), step)]


def test_names_the_output_layer_that_began_as_a_copy_of_the_embedding():
    assert found(made.untied()) == finding("embed.weight, out.weight", 0)


def test_names_two_paths_that_led_to_one_parameter_before():
    tables = made.untied(equal=False).tables
    later = {}
    for pid, (stock,) in tables.inventories.items():
        model = stock.models[0]
        tied = tuple(
            replace(p, also=("out.weight",)) if p.path == "embed.weight" else p
            for p in model.parameters if p.path != "out.weight"
        )  # fmt: skip
        later[pid] = (replace(stock, models=(replace(model, parameters=tied),)), replace(stock, step=3))

    assert found(Facts(replace(tables, inventories=later))) == finding("embed.weight, out.weight", 0)


def test_is_silent_about_an_output_layer_of_its_own():
    assert found(made.untied(equal=False)) == []


def test_is_silent_about_copies_of_one_kind_of_layer():
    assert found(made.untied(head="Embedding")) == []


def test_is_silent_about_a_healthy_training():
    assert found(Training().facts()) == []
