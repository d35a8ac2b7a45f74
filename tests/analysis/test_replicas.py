"""What must be equal over ranks, and what need not."""

from dataclasses import replace

from rankscope.analysis.replicas import averages_parameters, replicas, splits_layers, wrappers
from rankscope.testing import silent_sync as made
from rankscope.testing.trainings import PARAMETERS

EVERYTHING = {("Net", p.path) for p in PARAMETERS}


def meant(facts):
    return {key for key, one in replicas(facts).items() if one.meant}


def test_a_wrapper_keeps_all_parameters_equal():
    facts = made.WRAPPED.facts()

    assert meant(facts) == EVERYTHING
    assert {model: one.members for model, one in wrappers(facts).items()} == {"Net": (0, 1)}


def test_a_wrapper_of_some_ranks_keeps_those_equal():
    facts = replace(made.WRAPPED, ranks=3, extra=made.wrapping(members="0,2")).facts()

    assert {one.positions for one in replicas(facts).values()} == {(0, 2)}


def test_gradients_that_are_reduced_by_hand_make_replicas():
    assert meant(made.MANUAL.facts()) == EVERYTHING


def test_what_is_left_out_of_a_reduction_is_one_by_its_neighbours():
    run = replace(
        made.MANUAL,
        gradient=lambda rank, step, p: made.own_gradient(rank, step, p) if p.path == "head.bias" else {"rms": 0.009},
    )
    facts = run.facts()

    assert set(replicas(facts)) == EVERYTHING
    assert EVERYTHING - meant(facts) == {("Net", "head.bias")}


def test_of_split_layers_only_what_agrees_is_one():
    facts = made.tensor_parallel()

    assert splits_layers(facts)
    assert {key[1] for key in replicas(facts)} <= {"layers.0.bias", "norm.weight", "norm.bias", "head.bias"}


def test_shards_are_none_nor_are_ranks_that_do_not_communicate():
    assert replicas(made.sharded()) == {}
    assert replicas(made.sweep()) == {}


def test_parameters_that_are_averaged_now_and_then_are_none():
    facts = made.local_sgd()

    assert averages_parameters(facts)
    assert replicas(facts) == {}


def test_a_group_of_one_whose_peers_hold_other_parts_is_none():
    run = replace(
        made.WRAPPED, gradient=made.own_gradient, weight=made.own_weight,
        extra=made.both(made.wrapping(members="0"), made.summed_in_forward().extra),
    )  # fmt: skip

    assert replicas(run.facts()) == {}
