"""Groups that were never formed."""

import pytest

from rankscope.analysis.detectors.rendezvous_failure import RendezvousFailure
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_says_why_no_group_was_formed():
    (found,) = RendezvousFailure().examine(STOPS["rendezvous-failure"]())

    assert (found.cause, found.severity, found.ranks) == ("rendezvous-failure", "critical", (1,))
    assert found.component == "rendezvous"
    assert found.title == (
        "rank 1: the processes formed no group: DistNetworkError: EADDRINUSE port: 29500"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "rendezvous-failure"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(RendezvousFailure().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(RendezvousFailure().examine(HEALTHY_STOPS[name]())) == []
