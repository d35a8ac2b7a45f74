import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def observed():
    """The module `observed.py` of tests/capture: running programs under observation, reading rings."""
    path = Path(__file__).parents[1] / "capture" / "observed.py"
    spec = importlib.util.spec_from_file_location("observed", path)
    module = sys.modules["observed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
