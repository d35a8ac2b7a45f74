import os

import pytest
from hypothesis import settings

from rankscope.base import guard

# Where a change is judged, the same examples are tried each time; on a developer's machine new ones look for more.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def our_errors_fail_tests(monkeypatch):
    monkeypatch.setattr(guard, "RERAISE", True)
