"""Gradients that are reduced more than once, or summed where their mean is wanted."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.gradients_double_reduced import GradientsDoubleReduced
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named


def found_in(facts):
    return list(GradientsDoubleReduced().examine(facts))


def summed(**changes):
    return replace(made.MANUAL, gradient=lambda rank, step, p: {"rms": 0.018}, **changes)


def test_names_the_second_reduction_and_what_it_makes_of_gradients():
    found = found_in(made.doubled())

    assert [named(f) for f in found] == [
        Named("gradients-double-reduced", "critical", (0, 1), True, "communication", "Net", made.REDUCE_SITE, None)
    ]
    assert evidence_of(found) == {
        "steps with reductions of its size in backward and after it": 70.0,
        "size of a gradient after over before the second reduction": pytest.approx(2.0),
    }


def test_a_second_mean_changes_nothing_but_takes_time():
    run = replace(made.WRAPPED, extra=made.both(made.wrapping(), made.bucket, made.reduces()))

    assert [(f.severity, f.title) for f in found_in(run.facts())] == [(
        "warning",
        "gradients are averaged in backward by DistributedDataParallel and reduced again in average_gradients "
        "(train.py:43); the result is the same, the time is lost",
    )]  # fmt: skip


def test_names_an_operation_in_the_forward_that_sums_in_backward_as_well():
    found = found_in(made.summed_in_forward().facts())

    assert [(named(f).component, named(f).place, f.severity) for f in found] == [
        ("layers.0.weight, layers.0.bias", made.FORWARD_SITE, "critical")
    ]
    assert found[0].title == (
        "_AllReduce sums over ranks in forward and in backward again, and all ranks compute the same loss: gradients "
        "of layers.0.weight, layers.0.bias are counted once a rank in Net.forward (model.py:21); they are 2 times as "
        "large as their mean"
    )


def test_is_silent_about_such_an_operation_where_losses_differ():
    run = replace(made.summed_in_forward(), loss=lambda rank, step: 2.0 - step / 100 + 0.1 * rank)

    assert found_in(run.facts()) == []


def test_a_sum_by_hand_is_named_with_its_line():
    found = found_in(summed().facts())

    assert [(named(f).severity, named(f).component, named(f).place) for f in found] == [
        ("warning", "Net", made.REDUCE_SITE)
    ]


def test_a_sum_is_a_remark_where_the_optimizer_divides_by_the_size():
    assert [f.severity for f in found_in(summed(optimizer="AdamW").facts())] == ["info"]


def test_is_silent_about_a_sum_of_losses_that_are_divided():
    assert found_in(summed(extra=made.both(made.reduces(), made.factor(0.5))).facts()) == []


def test_is_silent_about_a_mean():
    assert found_in(made.MANUAL.facts()) + found_in(made.WRAPPED.facts()) == []


def test_is_silent_about_metrics_that_are_reduced():
    run = replace(made.WRAPPED, extra=made.both(made.wrapping(), made.bucket, made.reduces(elements=1)))

    assert found_in(run.facts()) == []
