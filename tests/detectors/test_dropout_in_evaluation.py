"""Dropout that is at work in evaluations."""

from rankscope.analysis.detectors.dropout_in_evaluation import DropoutInEvaluation
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, named

CODE = "Block|/home/user/model.py:12:Block.forward"


def found(facts):
    return [(named(f), f.first_step) for f in DropoutInEvaluation().examine(facts)]


def finding(component="Net", place=made.EVALUATE):
    return [(Named("dropout-in-evaluation", "warning", (0, 1), True, "evaluation", component, place, None), 10)]


def test_names_the_function_that_evaluates_in_training_mode():
    assert found(made.evaluations(training=1, random=1, dropouts=2)) == finding()


def test_knows_an_evaluation_by_a_loader_that_never_trains():
    assert found(made.evaluations(site=made.SITE, loader=2, training=1, batch_norms=1)) == finding(place=made.SITE)


def test_names_the_code_that_drops_whatever_the_mode_is():
    place = "/home/user/model.py:12:Block.forward"

    assert found(made.evaluations(random=1, dropout_code=1, name=CODE)) == finding("Block", place)


def test_names_layers_that_are_in_training_mode_by_themselves():
    assert found(made.evaluations(random=1, dropouts=1)) == finding()


def test_is_silent_about_many_passes_over_the_same_input():
    assert found(made.evaluations(random=1, dropouts=1, repeated=7)) == []


def test_is_silent_about_evaluation_mode_and_about_a_model_that_only_samples():
    assert [found(made.evaluations()), found(made.evaluations(random=1))] == [[], []]


def test_is_silent_about_a_generator_that_runs_inside_the_training_step():
    assert found(made.evaluations(every=1, site=made.SITE, training=1, random=1, dropouts=2)) == []


def test_is_silent_in_training_mode_where_no_layer_minds():
    assert found(made.evaluations(training=1, loader=2)) == []
