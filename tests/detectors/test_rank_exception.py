"""An exception that came first."""

import pytest

from rankscope.analysis.detectors.rank_exception import RankException
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_line_that_raised_it():
    (found,) = RankException().examine(STOPS["rank-exception"]())

    assert (found.cause, found.severity, found.ranks) == ("rank-exception", "critical", (1,))
    assert found.component == "parse"
    assert found.title == (
        "rank 1: ValueError: bad sample in parse (train.py:20)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "rank-exception"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(RankException().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(RankException().examine(HEALTHY_STOPS[name]())) == []
