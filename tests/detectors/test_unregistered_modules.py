"""Modules in a plain list."""

from rankscope.analysis.detectors.unregistered_modules import UnregisteredModules
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named


def found(facts):
    return [(named(f), f.first_step) for f in UnregisteredModules().examine(facts)]


def test_names_the_list_and_what_it_holds():
    assert found(made.unregistered()) == [
        (Named("unregistered-modules", "critical", (0, 1), True, "forward", "layers", None, None), 0)
    ]
    assert evidence_of(UnregisteredModules().examine(made.unregistered())) == {
        "parameters in layers with gradients that no optimizer holds": 8.0,
        "elements of the parameters in it": 2048.0,
    }


def test_is_silent_about_what_was_set_to_evaluation_mode_by_hand():
    assert found(made.unregistered(training=0)) == []


def test_is_silent_where_an_optimizer_holds_them():
    assert found(made.unregistered(held=8)) == []
