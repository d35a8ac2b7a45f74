"""Every detector on every made-up run: the right one fires, and what else fires is what it explains."""

from dataclasses import replace

import pytest

from rankscope.analysis import detectors
from rankscope.analysis.detector import Detector
from rankscope.analysis.engine import Examination, examine
from rankscope.base.plugins import load_all
from rankscope.testing.known_runs import BASE, FAULTS, HEALTHY, known_run, repaired_run
from rankscope.testing.parts import Code, GcPause, Save
from rankscope.testing.runs import recoverable_share
from rankscope.testing.silent import HEALTHY_TRAININGS, SILENT
from rankscope.testing.stops import HEALTHY_STOPS, STOPS

FOLLOWS = {
    "a quota holds rank 1": ("slow-device",),
    "rank 1 stopped now and then": ("slow-device",),
}
"""What a fault brings with it: found too, but after it and explained by it."""

SAMPLED = ("slow-code",)
"""Causes whose gain comes from stack samples: known within their number."""
NOT_OF_THE_WINDOW = ("slow-start", "recompilation", "autocast-inactive", "denormals", "host-sync")
"""Causes that cost time outside of the analysed steps, or whose gain is not known."""
ESTIMATED = ("more threads than cores",)
"""Gains from the kernel's readings, two a second: its detector's test holds them to within 5 points."""


def blamed(examination: Examination) -> list[str]:
    return [f.cause for f in examination.findings if f.severity != "info"]


def test_each_detector_has_a_run_with_its_fault():
    causes = {fault.cause for fault in FAULTS.values()} | set(STOPS) | set(SILENT)

    assert causes == {cls.name for cls in load_all(detectors, Detector)}


@pytest.mark.parametrize("cause", STOPS)
def test_a_stop_is_found_first_and_nothing_else_fails(cause):
    found = examine(STOPS[cause]()).findings

    assert found[0].cause == cause
    assert [f.cause for f in found if f.kind == "failure"] == [cause]


@pytest.mark.parametrize("cause", SILENT)
def test_a_silent_fault_is_found_first_and_nothing_else_is_blamed(cause):
    found = [f for f in examine(SILENT[cause]()).findings if f.severity != "info"]

    assert found[0].cause == cause
    assert {f.id for f in found[1:]} <= set(found[0].explains)


@pytest.mark.parametrize("name", HEALTHY_TRAININGS)
def test_nothing_is_blamed_on_a_healthy_training(name):
    assert blamed(examine(HEALTHY_TRAININGS[name]())) == []


@pytest.mark.parametrize("name", [*FAULTS, *HEALTHY])
def test_slow_runs_have_no_numerics_to_blame(name):
    assert [f.cause for f in examine(known_run(name).facts).findings if f.kind in ("numerics", "data")] == []


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_no_failure_is_found_where_nothing_has_stopped(name):
    assert [f.cause for f in examine(HEALTHY_STOPS[name]()).findings if f.kind == "failure"] == []


@pytest.mark.parametrize("name", [*FAULTS, *HEALTHY])
def test_no_failure_is_found_in_a_run_that_came_to_its_end(name):
    assert [f.cause for f in examine(known_run(name).facts).findings if f.kind == "failure"] == []


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_and_nothing_else_is_blamed(name):
    found = examine(known_run(name).facts).findings

    assert [f.cause for f in found if f.severity != "info"] == [FAULTS[name].cause, *FOLLOWS.get(name, ())]
    assert found[0].explains == tuple(f.id for f in found[1:])


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_blamed_once_the_fault_is_repaired(name):
    assert blamed(examine(repaired_run(name).facts)) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_blamed_on_a_healthy_run(name):
    assert blamed(examine(known_run(name).facts)) == []


EXACT = [n for n, fault in FAULTS.items() if fault.cause not in NOT_OF_THE_WINDOW and n not in ESTIMATED]


@pytest.mark.parametrize("name", EXACT)
def test_the_promised_gain_is_what_the_repair_brings(name):
    found = examine(known_run(name).facts).findings[0]
    if found.cost.recoverable_share is None:
        pytest.skip("the detector promises nothing")
    truth = recoverable_share(known_run(name), repaired_run(name))

    assert found.cost.recoverable_share == pytest.approx(truth, abs=0.06 if FAULTS[name].cause in SAMPLED else 0.015)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_noise_is_never_blamed(ranks, seed):
    run = replace(BASE, ranks=ranks, noise=0.08, seed=seed).build()

    assert blamed(examine(run.facts)) == []


@pytest.mark.parametrize("name", [n for n in FAULTS if FAULTS[n].run.ranks == 2])
def test_the_fault_is_found_through_noise(name):
    run = replace(FAULTS[name].run, noise=0.03, seed=7).build()

    assert blamed(examine(run.facts))[:1] == [FAULTS[name].cause]


def test_two_faults_are_both_named_the_dearer_one_first():
    parts = (Save(ms=400.0, every=20, offset=4, ranks=(0,)), GcPause(ms=100.0, every=10, ranks=(1,)))
    found = blamed(examine(replace(BASE, parts=parts).build().facts))

    assert found == ["checkpoint-stall", "gc-pause"]


def test_a_run_of_a_few_steps_is_not_examined_rather_than_healthy():
    examination = examine(replace(BASE, steps=8, parts=(Code(ms=40.0),)).build().facts)

    assert examination.findings == ()
    assert {u.why for u in examination.not_examined if u.detector == "slow-code"} == {
        "fewer than 8 steps after the warm-up"
    }


def test_what_a_run_has_no_records_of_is_not_examined():
    examination = examine(known_run("two ranks").facts)

    whys = {u.detector: u.why for u in examination.not_examined}
    assert whys | {
        "autocast-inactive": "no module records",
        "denormals": "no module records",
        "host-sync": "no device_wait records",
        "recompilation": "no compile records",
    } == whys
