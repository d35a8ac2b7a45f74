"""Other processes on a rank's cores."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.cpu_contention import CpuContention
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.host import Host, Stranger
from rankscope.testing.known_runs import BASE, known_run, slower


def test_names_the_rank_and_the_neighbour():
    run = known_run("a neighbour on rank 1's cores")

    assert found_by(CpuContention, run) == [
        Named("cpu-contention", "warning", (1,), False, None, "process 77 (stress-ng) on the same cores", None,
              pytest.approx(0.328, abs=0.002))
    ]  # fmt: skip
    shown = evidence_of(CpuContention().examine(run.facts))
    assert shown["rank 1 was ready to run and had no CPU"] == pytest.approx(0.33)
    assert shown["CPUs used by stress-ng (process 77), which is not observed"] == pytest.approx(1.2, abs=0.15)


@pytest.mark.parametrize("name", ["two ranks", "more threads than cores", "a quota holds rank 1", "slow device"])
def test_is_silent_where_no_stranger_takes_time(name):
    assert found_by(CpuContention, known_run(name)) == []


def test_is_silent_where_a_busy_stranger_keeps_nobody_waiting():
    assert found_by(CpuContention, known_run("a busy neighbour on other cores")) == []


def test_is_silent_where_the_rank_that_waits_is_not_the_one_that_the_others_wait_for():
    host = Host(run_delay={1: 0.2}, strangers=(Stranger("cc1plus", 1.0),))
    run = replace(slower({0: 2.0}), host=host).build()  # rank 0 computes longer: rank 1's delay is hidden

    assert found_by(CpuContention, run) == []


def test_cannot_examine_a_run_that_was_read_once():
    run = replace(BASE, steps=12, host=Host()).build()

    with pytest.raises(CannotExamine, match="run-queue times were not read"):
        found_by(CpuContention, run)
