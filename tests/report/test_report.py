import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.base.causes import CAUSES
from rankscope.base.errors import UserError
from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.report.report import (
    Attempt,
    BudgetLine,
    Clock,
    Exit,
    InputFile,
    Lost,
    NotExamined,
    Overhead,
    Report,
    Run,
    Step,
    Trace,
    WhatIf,
    from_json,
    to_json,
    verdict_of,
)

NAMES = ["healthy", "slow-loading", "slow-link", "checkpoint-stall", "failed", "not-examined", "imported"]

words = st.text(max_size=12)
ints = st.integers(0, 2**53)
floats = st.floats(allow_nan=False, allow_infinity=False)
ranks = st.lists(st.integers(0, 4096), max_size=3).map(tuple)
maybe = lambda strategy: st.none() | strategy  # noqa: E731
many = lambda strategy: st.lists(strategy, max_size=2).map(tuple)  # noqa: E731
table = lambda keys: maybe(st.dictionaries(keys, floats, max_size=2))  # noqa: E731

findings = st.builds(
    Finding,
    cause=st.sampled_from(sorted(CAUSES)),
    severity=st.sampled_from(["info", "warning", "critical"]),
    confidence=st.floats(0, 1),
    title=words,
    ranks=ranks,
    all_ranks=st.booleans(),
    phase=maybe(words),
    component=maybe(words),
    location=maybe(st.builds(Location, words, ints, words)),
    first_step=maybe(ints),
    last_step=maybe(ints),
    cost=st.builds(Cost, maybe(floats), maybe(st.floats(0, 1)), maybe(st.floats(0, 1))),
    evidence=st.lists(st.builds(Evidence, words, maybe(floats), words, ranks), min_size=1, max_size=2).map(tuple),
    explains=many(words),
    next=many(words),
    id=words,
)
reports = st.builds(
    Report,
    run=st.builds(
        Run,
        id=words,
        name=words,
        command=many(words),
        started=maybe(words),
        duration_s=maybe(floats),
        world_size=maybe(ints),
        nodes=maybe(ints),
        backend=maybe(words),
        steps=maybe(ints),
        fingerprint=maybe(words),
        exits=many(st.builds(Exit, ints, maybe(st.integers(-255, 255)), maybe(words))),
        attempts=many(
            st.builds(
                Attempt,
                ints,
                maybe(words),
                maybe(floats),
                maybe(ints),
                maybe(words),
                maybe(ints),
                maybe(words),
                maybe(words),
                many(ints),
            )
        ),
    ),
    verdict=st.sampled_from(["healthy", "degraded", "failed", "not-examined"]),
    findings=many(findings),
    step=st.builds(Step, maybe(floats), maybe(floats), ints, many(st.builds(BudgetLine, words, ints, floats, floats))),
    whatif=st.builds(WhatIf, maybe(floats), table(ints), table(words), table(words), maybe(floats), maybe(floats)),
    traces=many(st.builds(Trace, words, maybe(ints), floats, floats, floats, floats, floats, maybe(floats))),
    files=many(st.builds(InputFile, words, words, st.booleans(), maybe(words))),
    not_examined=many(st.builds(NotExamined, words, words, words)),
    clock=st.builds(Clock, words, maybe(floats)),
    overhead=st.builds(Overhead, maybe(floats), maybe(floats), words),
    lost=st.builds(Lost, maybe(ints), words),
)


@settings(max_examples=60, deadline=None)
@given(reports)
def test_json_gives_back_every_report_as_it_was(report):
    assert from_json(to_json(report), "report.json") == report


@pytest.mark.parametrize("name", NAMES)
def test_json_gives_back_the_made_up_reports(made_up, name):
    report = made_up.REPORTS[name]

    assert from_json(to_json(report), "report.json") == report


def test_json_has_the_fields_of_the_contract_in_its_order(made_up):
    document = json.loads(to_json(made_up.FAILED))

    assert list(document) == [
        *("schema", "run", "verdict", "findings", "step", "whatif", "traces", "files", "not_examined"),
        *("clock", "overhead", "lost", "model", "notes"),
    ]
    assert document["schema"] == "rankscope.report/1"
    assert document["run"] == {
        "id": "20260301-101500-resnet",
        "name": "resnet50-imagenet",
        "command": ["torchrun", "--nproc-per-node=4", "train.py", "--epochs", "3"],
        "started": "2026-03-01T10:15:00Z",
        "duration_s": 412.0,
        "world_size": 4,
        "nodes": 1,
        "backend": "gloo",
        "steps": 212,
        "fingerprint": "7c1e09",
        "exits": [
            {"rank": 0, "code": 1, "signal": None},
            {"rank": 1, "code": None, "signal": "SIGKILL"},
            {"rank": 2, "code": 1, "signal": None},
            {"rank": 3, "code": 1, "signal": None},
        ],
        "attempts": [],
    }
    assert document["whatif"] == {
        **{"slowdown": None, "by_rank": None, "by_stage": None, "by_operation": None},
        **{"worker_share": None, "stage_share": None},
    }


def test_json_of_a_finding_begins_with_id_cause_and_kind(made_up):
    finding = json.loads(to_json(made_up.SLOW_LINK))["findings"][0]

    assert list(finding) == [
        *("id", "cause", "kind", "severity", "confidence", "title", "ranks", "all_ranks", "phase", "component"),
        *("location", "first_step", "last_step", "cost", "evidence", "explains", "next"),
    ]
    assert finding["location"] == {"file": "train.py", "line": 88, "function": "train_step"}
    assert finding["cost"] == {"ms_per_step": 212.0, "share": 0.63, "recoverable_share": 0.58}


def test_ranks_are_strings_where_they_are_keys_in_json(made_up):
    assert json.loads(to_json(made_up.SLOW_LINK))["whatif"]["by_rank"] == {"0": 1.0, "1": 2.38}


def test_what_is_no_number_is_written_as_null_and_never_as_0():
    report = Report(Run("r"), "healthy", overhead=Overhead(float("nan"), 0.01))

    assert json.loads(to_json(report))["overhead"] == {"share": None, "budget": 0.01, "method": ""}


def test_a_file_name_that_is_no_utf8_can_be_written():
    report = Report(Run("r"), "not-examined", files=(InputFile("bad\udcff", "", False),))

    assert json.loads(to_json(report))["files"][0]["path"] == "bad?"


def test_fields_that_a_later_version_added_are_passed_over(made_up):
    document = json.loads(to_json(made_up.SLOW_LINK))
    document["weather"] = document["run"]["weather"] = "fine"

    assert from_json(json.dumps(document), "report.json") == made_up.SLOW_LINK


def broken(change):
    document = json.loads(to_json(Report(Run("r"), "healthy")))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "report.json: input data was truncated;"),
        ('{"schema": 1}', "report.json: field schema: expected `str | null`, got `int`;"),
        ("{}", "report.json: field schema is None, not 'rankscope.report/1';"),
        ('{"schema": "rankscope.report/9"}', "report.json: field schema is 'rankscope.report/9', not"),
        (broken(lambda d: d["run"].pop("id")), "report.json: field run.id is missing;"),
        (broken(lambda d: d.pop("run")), "report.json: field run is missing;"),
        (
            broken(lambda d: d["run"].update(steps="9")),
            "report.json: field run.steps: expected `int | null`, got `str`;",
        ),
        (broken(lambda d: d.update(verdict="fine")), "report.json: field verdict: invalid enum value 'fine';"),
    ],
)
def test_bad_input_is_answered_with_file_and_field(text, message):
    with pytest.raises(UserError) as caught:
        from_json(text, "report.json")

    assert str(caught.value).startswith(message)


def test_a_finding_without_evidence_in_a_file_is_named(made_up):
    document = json.loads(to_json(made_up.SLOW_LINK))
    document["findings"][0]["evidence"] = []

    with pytest.raises(UserError, match=r"report\.json: field findings\[0\]: finding slow-link has no evidence"):
        from_json(json.dumps(document), "report.json")


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(UserError, match=r"report\.json: "):
        from_json(b'{"schema": "\xff"}', "report.json")


@pytest.mark.parametrize(
    ("cause", "severity", "examined", "verdict"),
    [
        ("dead-rank", "critical", True, "failed"),
        ("dead-rank", "warning", True, "degraded"),
        ("slow-link", "critical", True, "degraded"),
        ("slow-link", "warning", False, "degraded"),
        ("slow-link", "info", True, "healthy"),
        ("slow-link", "info", False, "not-examined"),
    ],
)
def test_the_verdict_follows_from_the_worst_finding(made_up, cause, severity, examined, verdict):
    finding = dataclasses.replace(made_up.SLOW_LINK.findings[0], cause=cause, severity=severity, kind="")

    assert verdict_of([finding], examined) == verdict


@pytest.mark.parametrize(("examined", "verdict"), [(True, "healthy"), (False, "not-examined")])
def test_without_findings_the_verdict_says_whether_anything_was_examined(examined, verdict):
    assert verdict_of([], examined) == verdict


def test_a_failure_that_is_not_the_first_finding_still_means_failed(made_up):
    assert verdict_of([*made_up.SLOW_LOADING.findings, *made_up.FAILED.findings], True) == "failed"


@pytest.mark.parametrize("name", NAMES)
def test_the_made_up_reports_keep_the_promises_of_the_contract(made_up, name):
    report = made_up.REPORTS[name]

    shares = sum(line.share for line in report.step.budget)
    assert report.verdict == verdict_of(report.findings, name != "not-examined")
    assert shares == pytest.approx(1 if report.step.budget else 0)
