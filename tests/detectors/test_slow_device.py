"""A rank whose kernels are all slower."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.slow_device import SlowDevice
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run


def test_names_the_device_of_two():
    run = known_run("slow device")

    assert found_by(SlowDevice, run) == [
        Named("slow-device", "warning", (1,), False, "forward", "device of rank 1 on node0", None,
              pytest.approx(0.2805, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(SlowDevice().examine(run.facts))
    assert shown["forward of rank 1 over the peers' median"] == pytest.approx(1.4)
    assert shown["backward of rank 1 over the peers' median"] == pytest.approx(1.4, abs=0.002)
    assert shown["optimizer of rank 1 over the peers' median"] == pytest.approx(1.4)


def test_names_the_device_of_four():
    assert found_by(SlowDevice, known_run("slow device among four")) == [
        Named("slow-device", "warning", (2,), False, "forward", "device of rank 2 on node0", None,
              pytest.approx(0.2805, abs=0.001))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "two ranks",
        "noise on all ranks",
        "longer batches on rank 1",
        "a neighbour on rank 1's cores",
        "slow function on rank 1",
    ],
)
def test_is_silent_where_something_else_explains_it(name):
    assert found_by(SlowDevice, known_run(name)) == []


def test_is_silent_where_only_one_phase_is_slower():
    assert found_by(SlowDevice, replace(BASE, forward_ms={1: 35.0}).build()) == []


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(SlowDevice, known_run("one process"))
