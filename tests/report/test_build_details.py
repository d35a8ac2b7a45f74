"""What the HTML report draws of a run."""

from collections import Counter
from dataclasses import replace

import pytest

from rankscope.base.manifest import Manifest
from rankscope.report import build_details
from rankscope.report.build import build_report
from rankscope.testing.known_runs import BASE
from rankscope.testing.parts import Reduce


@pytest.fixture
def timelines(tmp_path):
    """The timelines of a made-up run of two ranks."""

    def draw(run):
        facts = run.build().facts
        report = build_report(facts, Manifest("r", "r", (), ""))
        return build_details.build_details(facts, report, tmp_path).steps

    return draw


def test_all_spans_of_a_usual_step_are_drawn(timelines):
    assert [step.left_out for step in timelines(BASE)] == [0, 0]


def test_spans_that_are_too_many_are_counted(timelines, monkeypatch):
    run = replace(BASE, parts=(Reduce(calls=30),))
    whole, _ = timelines(run)
    monkeypatch.setattr(build_details, "MAX_SPANS", 40)

    step, _ = timelines(run)

    assert Counter(span.rank for span in step.spans) == {0: 20, 1: 20}
    assert step.left_out == len(whole.spans) - 40
