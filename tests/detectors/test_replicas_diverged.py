"""Parameters that must be equal and are not, though their gradients are."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.replicas_diverged import ReplicasDiverged
from rankscope.records.training import OptimizerStep
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, named


def found_in(facts):
    return list(ReplicasDiverged().examine(facts))


def test_names_the_rank_whose_parameters_jump_and_the_step():
    found = found_in(made.diverged())

    assert [named(f) for f in found] == [
        Named("replicas-diverged", "critical", (1,), False, "optimizer", "Net", "/home/user/train.py:40:main", None)
    ]
    assert (found[0].first_step, found[0].last_step) == (32, 69)


def test_names_the_odd_one_of_three_ranks():
    def weight(rank, step, p):
        return made.own_weight(rank, step, p) if rank == 2 and step > 3 else {}

    found = found_in(replace(made.WRAPPED, ranks=3, weight=weight, extra=made.wrapping(members="0,1,2")).facts())

    assert [(f.ranks, f.first_step) for f in found] == [((2,), 4)]


def test_names_learning_rates_that_differ():
    def other_rate(w, rank, step, t):
        if rank == 1 and step >= 0:
            w.rows = [row for row in w.rows if row[6] != OptimizerStep.code or row[8] != step]
            w.put(OptimizerStep, t, t, step, name="SGD", optimizer=1, lr=2e-3)

    def rates(w, rank, step, t):
        made.MANUAL.extra(w, rank, step, t)
        other_rate(w, rank, step - 1, t - 1)

    found = found_in(replace(made.MANUAL, weight=made.own_weight, extra=rates).facts())

    assert [f.title for f in found] == [
        "replicas differ since step 0: embed.weight, layers.0.weight, layers.0.bias and 4 more; learning rates differ "
        "(0.001, 0.002)"
    ]


def test_is_silent_where_gradients_are_the_reason():
    assert found_in(made.bypassed()) == []


def test_is_silent_where_replicas_agree():
    assert found_in(made.WRAPPED.facts()) + found_in(made.MANUAL.facts()) == []


def test_is_silent_about_what_is_split_or_averaged_now_and_then():
    assert found_in(made.tensor_parallel()) + found_in(made.sharded()) + found_in(made.local_sgd()) == []


def test_a_sweep_is_not_examined():
    with pytest.raises(CannotExamine, match="do not communicate"):
        found_in(made.sweep())
