"""Parameters that change although they were declared frozen."""

from rankscope.analysis.detectors.unintended_trainable import UnintendedTrainable
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, named


def found(facts):
    return [(named(f), f.first_step) for f in UnintendedTrainable().examine(facts)]


def test_names_the_part_whose_train_function_should_have_frozen_it():
    place = "/home/user/model.py:31:Backbone.train"

    assert found(made.idle_freeze()) == [
        (Named("unintended-trainable", "warning", (0, 1), True, "optimizer", "layers", place, None), 0)
    ]


def test_is_silent_once_something_of_it_is_frozen():
    assert found(made.idle_freeze(made.part(("layers.0.bias",), trainable=False, group=""))) == []


def test_names_frozen_parameters_that_the_optimizer_moves_by_an_old_gradient():
    assert found(made.frozen_later()) == [
        (Named("unintended-trainable", "critical", (0, 1), True, "optimizer", "head.weight", None, None), 8)
    ]


def test_is_silent_about_parameters_that_are_switched_off_for_a_part_of_each_step():
    assert found(made.frozen_later(fresh=True)) == []
