"""Replicas that train on gradients of their own."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.gradients_not_synchronised import GradientsNotSynchronised
from rankscope.records.training import Call
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import Training

ALONE = "gradients of Net are not averaged over ranks: "


def found_in(facts):
    return list(GradientsNotSynchronised().examine(facts))


def titles(facts):
    return [f.title for f in found_in(facts)]


def unwrapped(**changes):
    """Each rank has its own gradients, though a wrapper is there."""
    return replace(
        made.WRAPPED, gradient=made.own_gradient, raw_gradient=made.own_gradient, weight=made.own_weight, **changes
    )


def test_names_the_line_that_goes_past_the_wrapper():
    found = found_in(made.bypassed())

    assert [named(f) for f in found] == [
        Named("gradients-not-synchronised", "critical", (0, 1), True, "backward", "Net", made.MODULE_SITE, None)
    ]
    assert (found[0].first_step, found[0].last_step) == (0, 64)
    assert found[0].title == (
        ALONE + "its forward goes past DistributedDataParallel (`.module`) in main (train.py:37); each rank trains "
        "alone"
    )
    assert evidence_of(found) == {
        "sampled steps on which gradients differ between ranks": 10.0,
        "of so many sampled steps": 10.0,
        "parameters whose gradients differ": 7.0,
        "parameters that must agree": 7.0,
        "largest relative distance between ranks, embed.weight": pytest.approx(0.22, abs=0.01),
    }


def test_names_parameters_that_were_replaced_after_wrapping():
    head = made.only("head.weight", made.own_gradient)
    run = replace(
        made.WRAPPED, gradient=head, raw_gradient=head, weight=made.only("head.weight", made.own_weight),
        extra=made.both(made.wrapping(unknown=1, names="head.weight")),
    )  # fmt: skip

    found = found_in(run.facts())

    assert [(f.component, f.title) for f in found] == [(
        "head.weight",
        "gradients of head.weight are not averaged over ranks: head.weight replaced after DistributedDataParallel was "
        "made, whose hooks hang on the parameters before; each rank trains alone",
    )]  # fmt: skip


def test_names_no_sync_around_the_last_micro_batch():
    def enters(w, rank, step, t):
        w.put(Call, t, t, step, name="DistributedDataParallel.no_sync", site=made.NO_SYNC_SITE, count=1)

    found = found_in(unwrapped(extra=made.both(made.wrapping(synchronises=0), enters)).facts())

    assert [named(f).place for f in found] == [made.NO_SYNC_SITE]
    assert [f.title for f in found] == [
        ALONE + "every micro-batch is inside no_sync() in main (train.py:36); each rank trains alone"
    ]


def test_names_a_process_group_of_one():
    assert titles(unwrapped(extra=made.wrapping(members="0")).facts()) == [
        ALONE + "its process group holds this rank alone; each rank trains alone"
    ]


def test_names_a_parameter_that_is_left_out_of_a_reduction_by_hand():
    run = replace(
        made.MANUAL,
        gradient=lambda rank, step, p: made.own_gradient(rank, step, p) if p.path == "norm.weight" else {"rms": 0.009},
        weight=made.only("norm.weight", made.own_weight),
    )

    found = found_in(run.facts())

    assert [(named(f).component, named(f).place, f.title) for f in found] == [(
        "norm.weight", "/home/user/train.py:40:main",
        "gradients of norm.weight are not averaged over ranks: they are left out of the reduction that the other "
        "parameters get; each rank trains alone",
    )]  # fmt: skip


def test_is_silent_where_gradients_agree():
    assert found_in(made.WRAPPED.facts()) + found_in(made.MANUAL.facts()) == []


def test_is_silent_about_what_is_split_over_ranks():
    assert found_in(made.tensor_parallel()) + found_in(made.sharded()) == []


def test_is_silent_where_parameters_are_averaged_now_and_then():
    assert found_in(made.local_sgd()) == []


def test_is_silent_about_differences_of_rounding():
    def rounded(rank, step, p):
        return {"fingerprint": 100 * step + rank, "rms": 0.01 * (1 + 1e-7 * rank)}

    assert found_in(replace(made.WRAPPED, gradient=rounded).facts()) == []


def test_ranks_that_never_communicate_are_not_examined():
    with pytest.raises(CannotExamine, match="do not communicate"):
        found_in(made.sweep())
    with pytest.raises(CannotExamine, match="one rank"):
        found_in(Training(ranks=1, wrapper="").facts())


def test_is_silent_where_ranks_scale_equal_gradients_differently():
    def gradient(rank, step, p):
        return {**made.own_gradient(rank, step, p), **({"rms": 0.01 * (1 + rank)} if not step else {})}

    run = replace(
        made.MANUAL, loss=lambda rank, step: 2.0, weight=made.own_weight, gradient=gradient,
        raw_gradient=lambda rank, step, p: made.own_gradient(rank, step, p) if step else {},
        extra=made.summed_in_forward().extra,
    )  # fmt: skip

    assert found_in(run.facts()) == []
