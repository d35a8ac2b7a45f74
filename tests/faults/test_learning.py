"""Numerics and data faults on the fault bench: their families, what is asked of them, and where they are written."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parents[2] / "faults"
NAMES = ("scoring", "stall", "running", "page", "results", "targets", "bench")


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(FAULTS))
    loaded = {name: importlib.import_module(name) for name in NAMES}
    yield loaded
    sys.path.remove(str(FAULTS))
    for name in NAMES:
        sys.modules.pop(name, None)


def expectation(modules, **changes):
    raw = {
        "id": "A-D01",
        "title": "t",
        "command": ["python", "train.py"],
        "causes": ["missing-zero-grad"],
        "ranks": [0],
        "all_ranks": True,
        "world_size": 1,
    }
    return modules["scoring"].Expected.from_json({**raw, **changes})


def result(modules, name, found="missing-zero-grad", place=None):
    """An observed fault of which `found` was reported."""
    expected = expectation(modules, id=name, place=place)
    findings = [{"cause": found, "severity": "critical", "ranks": [0], "all_ranks": True}] if found else []
    outcome = modules["running"].Outcome(0, 9.0, "", {"verdict": "degraded", "findings": findings})
    case = modules["running"].Case("x", Path("x"), "train.py", expected)
    scored = modules["results"].score_outcome(outcome, expected, 0)
    return modules["results"].Result(case, score=scored, outcomes=[outcome], exit_code=0)


def control(modules, name, cause=None):
    expected = expectation(modules, id=name, causes=[])
    findings = [{"cause": cause, "severity": "warning", "ranks": [0], "all_ranks": True}] if cause else []
    made = {"verdict": "degraded" if cause else "healthy", "findings": findings}
    outcome = modules["running"].Outcome(0, 9.0, "", made)
    case = modules["running"].Case("x", Path("x"), "train.py", expected)
    scored = modules["results"].score_outcome(outcome, expected, 0)
    return modules["results"].Result(case, score=scored, outcomes=[outcome], exit_code=0)


@pytest.mark.parametrize(
    "name, family",
    [
        ("A-D01", "d"), ("A-ND07", "d"), ("A-E09", "e"), ("A-P10", "p"), ("A-N01", "p"), ("A-F07", "p"),
        ("A-C09s", "c"), ("N-C1", "c"),
    ],
)  # fmt: skip
def test_the_family_is_read_from_the_identifier(modules, name, family):
    assert expectation(modules, id=name).family == family


def all_fifty(modules, undetected=0, misplaced=0):
    names = [f"A-D{n:02d}" for n in range(1, 42)] + [f"A-E{n:02d}" for n in range(1, 10)]
    made = [result(modules, name, found=None) for name in names[:undetected]]
    rest = names[undetected:]
    made += [result(modules, name, place={"any_of": ["^elsewhere$"]}) for name in rest[:misplaced]]
    return made + [result(modules, name) for name in rest[misplaced:]]


def test_of_fifty_three_may_be_missed_and_eight_not_be_exact(modules):
    assert modules["targets"].missed_targets(all_fifty(modules, undetected=3, misplaced=5)) == []


def test_a_fourth_that_is_missed_is_named_with_the_others(modules):
    assert modules["targets"].missed_targets(all_fifty(modules, undetected=4)) == [
        "46 of 50 numerics and data faults detected, 47 needed: not A-D01, A-D02, A-D03, A-D04"
    ]


def test_a_ninth_that_is_not_exact_misses_the_target(modules):
    assert modules["targets"].missed_targets(all_fifty(modules, misplaced=9)) == [
        "41 of 50 numerics and data faults exact (0 skipped), 42 needed"
    ]


def test_a_single_one_must_be_found(modules):
    assert modules["targets"].missed_targets([result(modules, "A-E03", found=None)]) == [
        "0 of 1 numerics and data faults exact (0 skipped), 1 needed",
        "0 of 1 numerics and data faults detected, 1 needed: not A-E03",
    ]


def test_a_skipped_one_is_not_detected(modules):
    case = modules["running"].Case("x", Path("x"), "train.py", expectation(modules))
    skipped = modules["results"].Result(case, skipped="needs a CUDA device, none here")

    assert modules["targets"].missed_targets([skipped]) == [
        "0 of 1 numerics and data faults exact (1 skipped), 1 needed",
        "0 of 1 numerics and data faults detected, 1 needed: not A-D01",
    ]


def test_a_variant_is_not_counted_but_must_be_detected(modules):
    results = [*all_fifty(modules, undetected=3), result(modules, "A-D01s", found=None)]

    assert modules["targets"].missed_targets(results) == ["A-D01s not detected: no finding"]


def test_one_false_alarm_on_a_control_misses_the_target(modules):
    results = [*all_fifty(modules), control(modules, "A-ND02"), control(modules, "A-ND08", "dead-units")]

    assert modules["targets"].missed_targets(results) == ["A-ND08: warning dead-units; verdict degraded"]


def test_each_family_has_its_own_sentence(modules):
    results = [*all_fifty(modules, undetected=2, misplaced=1), control(modules, "A-ND02")]

    assert modules["targets"].summary(results) == (
        "38 of 41 numerics faults exact, 39 detected, 0 skipped; 0 false alarms on 1 healthy programs.\n"
        "9 of 9 data faults exact, 9 detected, 0 skipped; 0 false alarms on 0 healthy programs."
    )


def test_each_family_has_a_place_on_the_page(modules):
    text = (FAULTS.parent / "docs" / "faults.md").read_text()

    for family in modules["scoring"].FAMILIES:
        for marker in modules["page"].markers(family):
            assert text.count(marker) == 1
            assert modules["page"].INTRODUCTION.count(f"{{{family}}}") == 1


def test_controls_of_numerics_stand_in_the_tables_of_numerics(modules):
    results = [result(modules, "A-D01"), control(modules, "A-ND02"), result(modules, "A-E01")]

    bodies = modules["bench"].page_bodies(results)

    assert list(bodies) == ["d", "e"]
    assert ["A-ND02" in body for body in bodies.values()] == [True, False]
