"""The example of CONTRIBUTING.md is no fiction: it is loaded as a detector and its tests are run."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rankscope.analysis.detector import Detector
from rankscope.analysis.engine import examine
from rankscope.base.causes import CAUSES
from rankscope.testing import known_runs
from rankscope.testing.host import Host

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAME = "rankscope.analysis.detectors.memory_pressure"


def _block(kind: str) -> str:
    (block,) = re.findall(rf"```python {kind}\n(.*?)```", TEXT, re.DOTALL)
    return block


@pytest.fixture
def detector(monkeypatch):
    module = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    exec(compile(_block("detector"), "CONTRIBUTING.md", "exec"), vars(module))
    return module.MemoryPressure


def test_the_detector_is_one(detector):
    assert issubclass(detector, Detector)
    assert detector.name in CAUSES
    assert "## What to do" in detector.__doc__


def test_its_tests_pass(detector):
    names: dict[str, object] = {}
    exec(compile(_block("test"), "CONTRIBUTING.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]

    assert len(tests) == 2
    for test in tests:
        test()


def test_only_it_fires_on_its_run(detector):
    names = {**vars(known_runs), "replace": replace, "Host": Host}
    ((name, fault),) = eval(_block("fault"), names).items()

    def fired(run):
        ours = [f.cause for f in detector().examine(run.build().facts)]
        return [f.cause for f in examine(run.build().facts).findings if f.severity != "info"], ours

    assert name not in known_runs.FAULTS
    assert fired(fault.run) == ([], [fault.cause])
    assert fired(replace(fault.run, host=Host(growing={"major_faults": 1.0}))) == ([], [])
