"""Work before the first step."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.slow_start import SlowStart
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Initialise


def test_names_the_initialisation_that_is_repeated():
    run = known_run("weights initialised ten times")

    assert [f._replace(share=None) for f in found_by(SlowStart, run)] == [
        Named("slow-start", "warning", (0, 1), True, None, "weight initialisation",
              "/home/user/model.py:12:Net._init_weights", None)
    ]  # fmt: skip
    shown = evidence_of(SlowStart().examine(run.facts))
    assert shown["initialisation calls per tensor"] == pytest.approx(10)


def test_the_gain_is_the_repetitions_alone():
    [found] = found_by(SlowStart, known_run("weights initialised ten times"))

    # 10 x 0.5 s of which nine are too many; the run takes 1 s of imports, 5 s of these, and 100 steps of 50 ms.
    assert found.share == pytest.approx(4.5 / 11.02, abs=0.01)


def test_names_the_function_that_dominates_the_start():
    assert found_by(SlowStart, known_run("a start that indexes")) == [
        Named("slow-start", "warning", (0, 1), True, None, "build_index", "/home/user/data.py:80:build_index",
              pytest.approx(0.49, abs=0.02))
    ]  # fmt: skip


def test_is_silent_on_a_healthy_start():
    assert found_by(SlowStart, known_run("two ranks")) == []


def test_is_silent_about_long_imports():
    assert found_by(SlowStart, replace(BASE, start_ms=9000.0).build()) == []


def test_is_silent_where_each_weight_is_initialised_once():
    assert found_by(SlowStart, replace(BASE, parts=(Initialise(ms=900.0),)).build()) == []


def test_a_run_of_one_step_costs_no_more_than_itself():
    run = replace(BASE, steps=1, parts=(Initialise(ms=5000.0, repeated=0.9),)).build()

    [found] = found_by(SlowStart, run)

    assert found.share == pytest.approx(4.5 / 6.05, abs=0.01)
