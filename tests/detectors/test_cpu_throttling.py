"""CPU quotas."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.cpu_throttling import CpuThrottling
from rankscope.testing.checks import Named, found_by
from rankscope.testing.host import Host
from rankscope.testing.known_runs import BASE, known_run

QUOTA = "CPU quota of the container or job"
SIGNALS = "a process that sends SIGSTOP"


def test_names_the_rank_that_a_quota_holds():
    assert found_by(CpuThrottling, known_run("a quota holds rank 1")) == [
        Named("cpu-throttling", "warning", (1,), False, None, QUOTA, None, pytest.approx(0.369, abs=0.002))
    ]


def test_names_the_rank_that_is_stopped_again_and_again():
    assert found_by(CpuThrottling, known_run("rank 1 stopped now and then")) == [
        Named("cpu-throttling", "warning", (1,), False, None, SIGNALS, None, pytest.approx(0.494, abs=0.002))
    ]


@pytest.mark.parametrize("name", ["two ranks", "a neighbour on rank 1's cores", "more threads than cores"])
def test_is_silent_where_nothing_is_throttled(name):
    assert found_by(CpuThrottling, known_run(name)) == []


def test_is_silent_where_a_rank_is_throttled_while_it_waits_anyway():
    run = replace(BASE, forward_ms={0: 60.0}, host=Host(throttled={1: 0.3})).build()

    assert found_by(CpuThrottling, run) == []


def test_cannot_examine_without_counters():
    with pytest.raises(CannotExamine, match="too few readings of the cgroup"):
        found_by(CpuThrottling, replace(BASE, host=None).build())
