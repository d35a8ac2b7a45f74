"""A rank that works longer than its peers wait."""

import pytest

from rankscope.analysis.detectors.slow_rank_timeout import SlowRankTimeout
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_busy_function():
    (found,) = SlowRankTimeout().examine(STOPS["slow-rank-timeout"]())

    assert (found.cause, found.severity, found.ranks) == ("slow-rank-timeout", "critical", (0,))
    assert found.component == "tokenise"
    assert found.title == (
        "rank 0 was busy longer than its peers waited in tokenise (train.py:70)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "slow-rank-timeout"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(SlowRankTimeout().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(SlowRankTimeout().examine(HEALTHY_STOPS[name]())) == []
