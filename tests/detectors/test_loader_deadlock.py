"""A loader worker that waits for a lock."""

import pytest

from rankscope.analysis.detectors.loader_deadlock import LoaderDeadlock
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_line_of_the_worker():
    (found,) = LoaderDeadlock().examine(STOPS["loader-deadlock"]())

    assert (found.cause, found.severity, found.ranks) == ("loader-deadlock", "critical", (1,))
    assert found.component == "__getitem__"
    assert found.title == (
        "rank 1: a loader worker waits for a lock in __getitem__ (train.py:20)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "loader-deadlock"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(LoaderDeadlock().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(LoaderDeadlock().examine(HEALTHY_STOPS[name]())) == []
