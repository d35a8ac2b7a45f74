"""Layers that autocast does not reach."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.autocast_inactive import AutocastInactive
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Deep


def test_names_the_class_and_the_line_of_its_forward():
    run = known_run("a layer outside of autocast")

    assert found_by(AutocastInactive, run) == [
        Named("autocast-inactive", "warning", (0, 1), True, "forward", "ScaledLinear",
              "/home/user/model.py:60:ScaledLinear.forward", None)
    ]  # fmt: skip
    assert evidence_of(AutocastInactive().examine(run.facts)) == {
        "of the weights used inside autocast, multiplied in float32": 0.75,
        "modules that do so": 3,
    }


def test_is_silent_where_autocast_works():
    assert found_by(AutocastInactive, known_run("deep records")) == []


def test_is_silent_about_one_small_layer_in_full_precision():
    layers = (Deep(path="body", autocast=1, numel=1 << 20), Deep(path="head", autocast=1, numel=4096, full_precision=1))

    assert found_by(AutocastInactive, replace(BASE, parts=layers).build()) == []


def test_cannot_examine_a_run_without_autocast():
    with pytest.raises(CannotExamine, match="no module was called inside an autocast region"):
        found_by(AutocastInactive, replace(BASE, parts=(Deep(),)).build())
