"""A collective that a rank did not call."""

import pytest

from rankscope.analysis.detectors.missing_collective import MissingCollective
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_call_and_who_left_it_out():
    (found,) = MissingCollective().examine(STOPS["missing-collective"]())

    assert (found.cause, found.severity, found.ranks) == ("missing-collective", "critical", (1,))
    assert found.component == "allgather in validate (train.py:40)"
    assert found.title == (
        "rank 1 did not call allgather in validate (train.py:40) as the others did, and went on to "
        "allreduce in main (train.py:30)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "missing-collective"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(MissingCollective().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(MissingCollective().examine(HEALTHY_STOPS[name]())) == []
