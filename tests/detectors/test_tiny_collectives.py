"""Many small communication calls."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.tiny_collectives import TinyCollectives
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Reduce


def test_names_the_function_that_reduces_one_by_one():
    run = known_run("metrics reduced one by one")

    assert found_by(TinyCollectives, run) == [
        Named("tiny-collectives", "warning", (0, 1), True, "communication", "reduce_metrics",
              "/home/user/train.py:77:reduce_metrics", pytest.approx(0.1857, abs=0.005))
    ]  # fmt: skip
    assert evidence_of(TinyCollectives().examine(run.facts)) == {
        "collectives of at most 4096 bytes a step": 20,
        "of these are called from one line": 1.0,
        "bytes in such a call (median)": 4,
        "time in one such call": pytest.approx(0.6, abs=0.02),
    }


@pytest.mark.parametrize("name", ["two ranks", "a few reductions a step", "slow network", "sharded parameters"])
def test_is_silent_where_calls_are_few_or_large(name):
    assert found_by(TinyCollectives, known_run(name)) == []


def test_is_silent_where_many_calls_cost_nothing():
    run = replace(BASE, parts=(Reduce(calls=20, transfer_ms=0.03, between_ms=0.001),)).build()

    assert found_by(TinyCollectives, run) == []


def test_is_silent_where_the_calls_only_wait_for_a_late_rank():
    run = replace(BASE, forward_ms={1: 40.0}, parts=(Reduce(calls=8, transfer_ms=0.03, at="after-forward"),)).build()

    assert found_by(TinyCollectives, run) == []


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(TinyCollectives, known_run("one process"))
