"""Two orders of the same collectives."""

import pytest

from rankscope.analysis.detectors.collective_order_mismatch import CollectiveOrderMismatch
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_both_lines():
    (found,) = CollectiveOrderMismatch().examine(STOPS["collective-order-mismatch"]())

    assert (found.cause, found.severity, found.ranks) == ("collective-order-mismatch", "critical", (0, 1))
    assert found.component == "allreduce in sync (train.py:41)"
    assert found.title == (
        "ranks call collectives in different orders: at the same count: allreduce in sync (train.py:41) "
        "and broadcast in sync (train.py:42)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "collective-order-mismatch"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(CollectiveOrderMismatch().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(CollectiveOrderMismatch().examine(HEALTHY_STOPS[name]())) == []
