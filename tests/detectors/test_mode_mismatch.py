"""Ranks in different modes."""

import pytest

from rankscope.analysis.detectors.mode_mismatch import ModeMismatch
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_odd_rank_and_the_model():
    (found,) = ModeMismatch().examine(STOPS["mode-mismatch"]())

    assert (found.cause, found.severity, found.ranks) == ("mode-mismatch", "critical", (1,))
    assert found.component == "Net"
    assert found.title == (
        "rank 1 trained Net in another mode than the others: layers that synchronise in training mode only do not match"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "mode-mismatch"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(ModeMismatch().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(ModeMismatch().examine(HEALTHY_STOPS[name]())) == []
