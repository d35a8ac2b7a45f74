"""Sizes that differ."""

import pytest

from rankscope.analysis.detectors.collective_shape_mismatch import CollectiveShapeMismatch
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_minority_and_both_shapes():
    (found,) = CollectiveShapeMismatch().examine(STOPS["collective-shape-mismatch"]())

    assert (found.cause, found.severity, found.ranks) == ("collective-shape-mismatch", "critical", (2,))
    assert found.component == "allreduce in count (train.py:50)"
    assert found.title == (
        "sizes differ between ranks: allreduce of int64[12] on ranks 0 and 1 and int64[11] on rank 2 in "
        "count (train.py:50)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "collective-shape-mismatch"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(CollectiveShapeMismatch().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(CollectiveShapeMismatch().examine(HEALTHY_STOPS[name]())) == []
