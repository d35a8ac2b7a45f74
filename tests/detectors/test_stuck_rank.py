"""A rank that waits for a lock."""

import pytest

from rankscope.analysis.detectors.stuck_rank import StuckRank
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_function_that_waits():
    (found,) = StuckRank().examine(STOPS["stuck-rank"]())

    assert (found.cause, found.severity, found.ranks) == ("stuck-rank", "critical", (1,))
    assert found.component == "cached"
    assert found.title == (
        "rank 1 waits for a lock in cached (train.py:70)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "stuck-rank"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(StuckRank().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(StuckRank().examine(HEALTHY_STOPS[name]())) == []
