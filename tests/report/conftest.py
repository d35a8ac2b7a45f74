import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made_up():
    spec = importlib.util.spec_from_file_location("made_up", Path(__file__).parents[1] / "report" / "made_up.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
