"""Code that is compiled again and again."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.recompilation import Recompilation
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Compile


def test_names_the_function_and_the_guard():
    run = known_run("recompiled for every length")

    assert found_by(Recompilation, run) == [
        Named("recompilation", "warning", (0, 1), True, "forward", "torch.compile: L['x'].size()[1] == 128",
              "/home/user/model.py:20:forward", pytest.approx(0.317, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(Recompilation().examine(run.facts))
    assert shown["compilations of this function after its first"] == 9
    assert shown["time in them"] == pytest.approx(2700)


@pytest.mark.parametrize("name", ["compiled once"])
def test_is_silent_about_the_first_compilation(name):
    assert found_by(Recompilation, known_run(name)) == []


def test_is_silent_about_one_more_for_evaluation():
    first = Compile(reason="", when=lambda r, s: s == 0)
    again = Compile(ms=900.0, when=lambda r, s: s == 30)

    assert found_by(Recompilation, replace(BASE, parts=(first, again)).build()) == []


def test_names_short_ones_where_the_limit_was_reached():
    first = Compile(reason="", when=lambda r, s: s == 0)
    again = Compile(ms=15.0, when=lambda r, s: 0 < s <= 8, limit=1)

    assert [f.cause for f in found_by(Recompilation, replace(BASE, parts=(first, again)).build())] == ["recompilation"]


def test_examines_runs_of_a_few_steps():
    parts = (Compile(reason="", when=lambda r, s: s == 0), Compile(when=lambda r, s: s in (2, 3, 4)))

    assert [f.cause for f in found_by(Recompilation, replace(BASE, steps=6, parts=parts).build())] == ["recompilation"]


def test_a_run_of_one_step_costs_no_more_than_itself():
    first = Compile(reason="", ms=800.0, at="before-forward")
    parts = (first, Compile(), Compile(), Compile(at="in-backward"))

    [found] = Recompilation().examine(replace(BASE, steps=1, parts=parts).build().facts)

    # 800 ms once and three times 300 ms, of one step.
    assert found.cost.share == pytest.approx(0.9 / 1.749, abs=0.005)
    assert "51 % of the run" in found.title
