import pytest

from rankscope.base import guard


@pytest.fixture(autouse=True)
def our_errors_fail_tests(monkeypatch):
    monkeypatch.setattr(guard, "RERAISE", True)
