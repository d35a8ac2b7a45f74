"""Reads of device values by the host."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.host_sync import HostSync
from rankscope.analysis.engine import examine
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import DeviceReads
from rankscope.testing.simulation import ASLEEP


def test_names_the_line_that_reads():
    run = known_run("device values read all the time")

    assert found_by(HostSync, run) == [
        Named("host-sync", "warning", (0, 1), True, None, "main", "/home/user/train.py:47:main", None)
    ]
    assert evidence_of(HostSync().examine(run.facts)) == {
        "reads of device values a step": 4,
        "time in them, per step": 10.0,
        "of these from one line": 1.0,
    }


def test_comes_first_where_reads_put_the_thread_to_sleep():
    run = replace(BASE, cuda_devices=1, parts=(DeviceReads(count=4, ms=2.5, state=ASLEEP),)).build()

    assert examine(run.facts).findings[0].cause == "host-sync"


def test_is_silent_where_one_read_a_step_waits_for_a_busy_device():
    run = replace(BASE, cuda_devices=1, parts=(DeviceReads(count=1, ms=20.0),)).build()

    assert found_by(HostSync, run) == []


def test_is_silent_where_reads_are_quick():
    run = replace(BASE, cuda_devices=1, parts=(DeviceReads(count=8, ms=0.02),)).build()

    assert found_by(HostSync, run) == []


def test_cannot_examine_a_run_on_cpus():
    run = replace(BASE, parts=(DeviceReads(),)).build()

    with pytest.raises(CannotExamine, match="no CUDA device in use"):
        found_by(HostSync, run)
