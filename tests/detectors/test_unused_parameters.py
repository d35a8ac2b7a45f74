"""Parameters for which DDP waits."""

import pytest

from rankscope.analysis.detectors.unused_parameters import UnusedParameters
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_parameters():
    (found,) = UnusedParameters().examine(STOPS["unused-parameters"]())

    assert (found.cause, found.severity, found.ranks) == ("unused-parameters", "critical", (1,))
    assert found.component == "head.weight"
    assert found.title == (
        "rank 1: parameters got no gradient, and DDP waits for them: head.weight"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "unused-parameters"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(UnusedParameters().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(UnusedParameters().examine(HEALTHY_STOPS[name]())) == []
