"""A process that died first."""

import pytest

from rankscope.analysis.detectors.dead_rank import DeadRank
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_rank_the_signal_and_its_peers():
    (found,) = DeadRank().examine(STOPS["dead-rank"]())

    assert (found.cause, found.severity, found.ranks) == ("dead-rank", "critical", (1,))
    assert found.component == "SIGKILL"
    assert found.title == (
        "rank 1 died first: SIGKILL"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "dead-rank"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(DeadRank().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(DeadRank().examine(HEALTHY_STOPS[name]())) == []
