"""Connections that failed between living ranks."""

import pytest

from rankscope.analysis.detectors.network_error import NetworkError
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_needs_all_ranks_to_have_been_there():
    (found,) = NetworkError().examine(STOPS["network-error"]())

    assert (found.cause, found.severity, found.ranks) == ("network-error", "critical", (0,))
    assert found.component == "RuntimeError"
    assert found.title == (
        "rank 0: the network failed: RuntimeError: Connection timed out: No route to host"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "network-error"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(NetworkError().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(NetworkError().examine(HEALTHY_STOPS[name]())) == []
