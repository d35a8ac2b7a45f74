import importlib.util
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  what observation starts with


@pytest.fixture(scope="session")
def observed():
    """The module `observed.py` of tests/capture: running programs under observation, reading rings."""
    path = Path(__file__).parents[1] / "capture" / "observed.py"
    spec = importlib.util.spec_from_file_location("observed", path)
    module = sys.modules["observed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def watched(observed, tmp_path):
    """Runs a function in this process under observation; what was seen."""
    from rankscope.base.clock import now_ns
    from rankscope.capture import observer
    from rankscope.capture.config import Config

    def run(function, **values):
        agent = observer.start(Config(ring_folders=(str(tmp_path),), budget=1.0, **values), now_ns())
        agent.open()
        try:
            function()
        finally:
            observer.stop()
        (seen,) = [one for one in observed.read(tmp_path) if one.process.role == "rank"]
        for ring in tmp_path.glob("*.ring"):
            ring.unlink()
        return seen

    return run
