"""A rank without batches."""

import pytest

from rankscope.analysis.detectors.uneven_inputs import UnevenInputs
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_names_the_short_rank():
    (found,) = UnevenInputs().examine(STOPS["uneven-inputs"]())

    assert (found.cause, found.severity, found.ranks) == ("uneven-inputs", "critical", (1,))
    assert found.component == "barrier in main (train.py:60)"
    assert found.title == (
        "rank 1 ran out of batches before the others: went on to barrier in main (train.py:60) while "
        "they were in allreduce in main (train.py:30)"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "uneven-inputs"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(UnevenInputs().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(UnevenInputs().examine(HEALTHY_STOPS[name]())) == []
