import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def observed():
    """The module `observed.py` beside this file: running programs under observation."""
    spec = importlib.util.spec_from_file_location("observed", Path(__file__).parent / "observed.py")
    module = sys.modules["observed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
