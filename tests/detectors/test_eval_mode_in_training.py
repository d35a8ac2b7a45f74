"""Training in evaluation mode."""

from rankscope.analysis.detectors.eval_mode_in_training import EvalModeInTraining
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import Training


def found(facts):
    return [(named(f), f.first_step) for f in EvalModeInTraining().examine(facts)]


def test_names_the_model_and_the_step_from_which_it_trains_so():
    assert found(made.eval_mode(40)) == [
        (Named("eval-mode-in-training", "warning", (0, 1), True, "forward", "Net", None, None), 40)
    ]
    assert evidence_of(EvalModeInTraining().examine(made.eval_mode(40))) == {
        "training steps in evaluation mode": 30.0,
        "of the training steps since then": 1.0,
        "training steps in training mode before": 40.0,
    }


def test_finds_the_rest_of_an_epoch():
    assert [step for _, step in found(made.eval_mode(20, until=35))] == [20]


def test_only_remarks_on_a_model_that_never_was_in_training_mode_or_has_no_layer_that_minds():
    severities = [
        [f.severity for f in EvalModeInTraining().examine(facts)]
        for facts in (made.eval_mode(0), made.eval_mode(40, inventory=lambda stock: stock))
    ]

    assert severities == [["info"], ["info"]]


def test_is_silent_about_two_steps_and_about_training_mode():
    assert [found(made.eval_mode(20, until=22)), found(Training().facts())] == [[], []]


def test_is_silent_about_a_teacher_that_does_not_change():
    assert found(made.teacher_in_evaluation_mode()) == []
