"""Subnormal numbers in a layer."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.denormals import Denormals
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Deep


def test_names_the_layer_and_its_share_of_the_time():
    run = known_run("subnormal weights")

    found = found_by(Denormals, run)

    assert [f._replace(share=None) for f in found] == [
        Named("denormals", "warning", (0, 1), True, "forward", "layers.3", None, None)
    ]
    assert evidence_of(Denormals().examine(run.facts)) == {
        "layers.3: subnormal weights in a sample": pytest.approx(0.4, abs=0.001),
        "share of the forward time of these layers": pytest.approx(0.7),
    }


def test_is_silent_on_healthy_numbers():
    assert found_by(Denormals, known_run("deep records")) == []


def test_is_silent_about_a_slow_layer_of_normal_numbers():
    parts = (Deep(path="a", ms=1.0, subnormal=0.0), Deep(path="b", ms=9.0, subnormal=0.0))

    assert found_by(Denormals, replace(BASE, parts=parts).build()) == []


def test_is_silent_about_a_few_subnormals_and_about_many_in_a_quick_layer():
    parts = (Deep(path="softmax", ms=9.0, subnormal=0.03), Deep(path="gate", ms=0.3, subnormal=0.6))

    assert found_by(Denormals, replace(BASE, parts=parts).build()) == []
