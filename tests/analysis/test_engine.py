"""One detector that fails, ours or a stranger's, costs its own answer and no other."""

import importlib.metadata
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from rankscope.analysis.detector import Detector
from rankscope.analysis.detectors.gc_pause import GcPause
from rankscope.analysis.engine import Unexamined, examine
from rankscope.base import guard
from rankscope.testing import places
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Code


class Unfinished(Detector):
    """A plug-in that does not say what it needs."""

    name = "unfinished"


class Failing(Detector):
    """A plug-in with a mistake."""

    name = "failing"
    needs = ()

    def examine(self, facts):
        return 1 / 0


class Confused(Detector):
    """A plug-in that names its records in a way of its own."""

    name = "confused"
    needs = ("step",)


class Silent(Detector):
    """A plug-in that works."""

    name = "silent"
    needs = ()

    def examine(self, facts):
        return iter(())


def unexamined(name):
    (one,) = [u for u in examine(known_run("two ranks").facts).not_examined if u.detector == name]
    return one


@pytest.fixture
def installed(monkeypatch):
    """A function that registers objects of this module as plug-ins, as another package would."""
    group = "rankscope.analysis.detectors"

    def install(**points):
        found = [EntryPoint(name, value, group) for name, value in points.items()]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)

    return install


def test_a_detector_that_fails_says_how(monkeypatch):
    def examine(self, facts):
        raise KeyError("step")

    monkeypatch.setattr(guard, "RERAISE", False)
    monkeypatch.setattr(GcPause, "examine", examine)

    assert unexamined("gc-pause") == Unexamined("gc-pause", "step", "the detector failed: KeyError: 'step'")


def test_a_plug_in_that_fails_is_not_examined_and_the_others_are(monkeypatch, installed):
    monkeypatch.setattr(guard, "RERAISE", False)
    installed(failing=f"{__name__}:Failing", silent=f"{__name__}:Silent", confused=f"{__name__}:Confused")

    examination = examine(known_run("checkpoints on rank 0").facts)

    assert [finding.cause for finding in examination.findings] == ["checkpoint-stall"]
    assert [u for u in examination.not_examined if u.detector in ("failing", "silent", "confused")] == [
        Unexamined("failing", "", "the detector failed: ZeroDivisionError: division by zero"),
        Unexamined("confused", "step", "the detector failed: AttributeError: 'str' object has no attribute 'code'"),
    ]


@pytest.mark.parametrize(
    "value, why",
    [
        ("no_such_module:Class", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{__name__}:no_such_class", f"AttributeError: module {__name__!r} has no attribute 'no_such_class'"),
        ("os:sep", "TypeError: it is no Detector"),
        (f"{__name__}:Unfinished", "TypeError: it has no needs"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_listed(installed, value, why):
    installed(mine=value)

    assert unexamined("mine") == Unexamined("mine", "", f"the plug-in {value} cannot be loaded: {why}")


@pytest.mark.parametrize("steps, severity", [(200, "info"), (600, "warning")])
def test_what_took_less_than_half_a_second_in_all_is_a_remark(steps, severity):
    code = Code(ms=2.0, place=f"{places.TRAIN}:72:update")
    short = {"forward_ms": 0.5, "backward_ms": 1.0, "optimizer_ms": 0.2, "transfer_ms": 0.1, "loader": None}
    run = replace(BASE, ranks=1, steps=steps, parts=(code,), sample_hz=200.0, **short).build()

    assert [(f.cause, f.severity) for f in examine(run.facts).findings] == [("slow-code", severity)]
