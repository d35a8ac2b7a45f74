"""A rank that stopped by itself."""

import pytest

from rankscope.analysis.detectors.local_early_stop import LocalEarlyStop
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_rank_that_left():
    (found,) = LocalEarlyStop().examine(STOPS["local-early-stop"]())

    assert (found.cause, found.severity, found.ranks) == ("local-early-stop", "critical", (1,))
    assert found.component == "training loop"
    assert found.title == (
        "rank 1 left the training loop by a decision of its own: came to the end of the program after 40 steps"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "local-early-stop"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(LocalEarlyStop().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(LocalEarlyStop().examine(HEALTHY_STOPS[name]())) == []
