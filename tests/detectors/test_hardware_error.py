"""Errors of a device or its driver."""

import pytest

from rankscope.analysis.detectors.hardware_error import HardwareError
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def test_is_told_apart_from_errors_of_the_program():
    (found,) = HardwareError().examine(STOPS["hardware-error"]())

    assert (found.cause, found.severity, found.ranks) == ("hardware-error", "critical", (1,))
    assert found.component == "AcceleratorError"
    assert found.title == (
        "rank 1: the device or its driver failed: AcceleratorError: CUDA error: uncorrectable ECC error"
    )
    assert found.next


@pytest.mark.parametrize("cause", [name for name in STOPS if name != "hardware-error"])
def test_is_silent_where_something_else_stopped_the_run(cause):
    assert list(HardwareError().examine(STOPS[cause]())) == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_is_silent_where_nothing_has_stopped(name):
    assert list(HardwareError().examine(HEALTHY_STOPS[name]())) == []
