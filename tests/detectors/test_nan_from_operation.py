from rankscope.analysis.detectors.nan_from_operation import NanFromOperation
from rankscope.testing.silent_values import FAULTS, lost_gradient
from rankscope.testing.trainings import Training


def found(facts):
    return list(NanFromOperation().examine(facts))


def test_names_the_operation_and_the_parameter_before_it():
    (finding,) = found(FAULTS["nan-from-operation"]())

    assert (finding.all_ranks, finding.first_step, finding.component, finding.severity) == (
        True, 20, "log after head.bias", "critical",
    )  # fmt: skip
    assert finding.title == (
        "all ranks, step 20: log after head.bias makes the loss not finite: the logarithm of 2 of 80 values that are "
        "not positive"
    )


def test_names_the_operation_whose_gradient_was_lost_though_the_loss_was_finite():
    (finding,) = found(lost_gradient().facts())

    assert (finding.first_step, finding.phase, finding.component) == (2, "backward", "sqrt after layers.0.weight")
    assert finding.title == (
        "all ranks: the gradient of step 2 is not finite though its loss was: 2 of 7 parameters are lost; sqrt stands "
        "behind them and has an infinite derivative"
    )


def test_is_silent_where_the_optimizer_never_got_the_gradients():
    assert found(lost_gradient(skipped=True).facts()) == []


def test_is_silent_where_a_batch_was_at_fault_and_where_every_loss_is_finite():
    assert found(FAULTS["nan-from-data"]()) == []
    assert found(Training().facts()) == []
