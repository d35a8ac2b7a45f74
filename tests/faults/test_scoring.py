"""Scoring of the fault bench, on reports made by hand."""

from __future__ import annotations

import ast
import importlib
import json
import re
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


@pytest.fixture
def scoring(modules):
    return modules["scoring"]


def finding(cause="slow-data-loading", **changes):
    made = {
        "id": "f1",
        "cause": cause,
        "severity": "critical",
        "ranks": [0, 1],
        "all_ranks": True,
        "phase": "data",
        "component": "ImageFolder.__getitem__",
        "location": {"file": "/x/data.py", "line": 25, "function": "__getitem__"},
        "cost": {"ms_per_step": 20.0, "share": 0.5, "recoverable_share": 0.42},
    }
    return {**made, **changes}


def report(*findings, verdict="degraded", overhead=0.004):
    return {"verdict": verdict, "findings": list(findings), "overhead": {"share": overhead}}


def expectation(scoring, **changes):
    raw = {
        "id": "A-P02",
        "title": "t",
        "command": ["torchrun", "train.py"],
        "causes": ["slow-data-loading"],
        "forbidden": ["host-sync"],
        "ranks": [0, 1],
        "all_ranks": True,
        "rank_rule": "exact",
        "place": {"any_of": ["__getitem__", "augment"]},
        "needs": None,
        "repaired": "repaired.py",
        "world_size": 2,
        "noise": None,
    }
    return scoring.Expected.from_json({**raw, **changes})


def healthy(scoring):
    return expectation(scoring, id="A-N01", causes=[], forbidden=[], place=None, repaired=None)


def test_right_cause_rank_and_place_is_exact(scoring):
    scored = scoring.score(report(finding()), expectation(scoring))

    assert scored == scoring.Score(
        detected=True,
        exact=True,
        false_alarm=False,
        found="slow-data-loading",
        ranks="all",
        place="ImageFolder.__getitem__ data.py:25",
    )


def test_root_cause_in_second_place_is_detected_but_not_exact(scoring):
    scored = scoring.score(report(finding("communication-bound"), finding()), expectation(scoring))

    assert (scored.detected, scored.exact) == (True, False)
    assert scored.problems == ("first finding is critical communication-bound",)


def test_info_finding_does_not_detect(scoring):
    scored = scoring.score(report(finding(severity="info")), expectation(scoring))

    assert (scored.detected, scored.exact) == (False, False)


def test_report_without_findings_is_a_miss(scoring):
    scored = scoring.score(report(verdict="healthy"), expectation(scoring))

    assert (scored.detected, scored.exact, scored.found, scored.problems) == (False, False, "-", ("no finding",))


@pytest.mark.parametrize("severity, exact", [("info", True), ("warning", False), ("critical", False)])
def test_forbidden_cause_spoils_only_where_it_alarms(scoring, severity, exact):
    scored = scoring.score(report(finding(), finding("host-sync", severity=severity)), expectation(scoring))

    assert scored.exact is exact


def test_wrong_place_is_not_exact(scoring):
    wrong = finding(component="main", phase="forward", location={"file": "train.py", "line": 3, "function": "main"})
    scored = scoring.score(report(wrong), expectation(scoring))

    assert (scored.exact, scored.place_right, scored.problems) == (False, False, ("place main train.py:3",))


@pytest.mark.parametrize(
    "pattern, changes",
    [
        (r"data\.py:\d+", {}),
        ("GETITEM", {}),
        ("^data$", {"component": None, "location": None}),
        ("augment", {"component": None, "location": {"file": None, "line": None, "function": "augment"}}),
    ],
)
def test_place_is_sought_in_component_function_line_and_phase(scoring, pattern, changes):
    assert scoring.place_matches(finding(**changes), (pattern,))


def test_a_finding_without_place_does_not_match_a_wanted_place(scoring):
    assert not scoring.place_matches(finding(component=None, phase=None, location=None), ("x",))


@pytest.mark.parametrize(
    "expected, named, right",
    [
        ({"all_ranks": True, "ranks": [0, 1]}, {"all_ranks": True, "ranks": []}, True),
        ({"all_ranks": True, "ranks": [0, 1]}, {"all_ranks": False, "ranks": [1, 0]}, True),
        ({"all_ranks": True, "ranks": [0, 1]}, {"all_ranks": False, "ranks": [1]}, False),
        ({"all_ranks": False, "ranks": [1]}, {"all_ranks": False, "ranks": [1]}, True),
        ({"all_ranks": False, "ranks": [1]}, {"all_ranks": False, "ranks": [0]}, False),
        ({"all_ranks": False, "ranks": [1]}, {"all_ranks": True, "ranks": [1]}, False),
        ({"all_ranks": None, "ranks": [0]}, {"all_ranks": True, "ranks": [0]}, True),
        ({"all_ranks": None, "ranks": [0]}, {"all_ranks": False, "ranks": [0]}, True),
        ({"all_ranks": False, "ranks": [0, 1], "rank_rule": "any"}, {"all_ranks": False, "ranks": [1]}, True),
        ({"all_ranks": False, "ranks": [0, 1], "rank_rule": "any"}, {"all_ranks": False, "ranks": []}, False),
    ],
)
def test_ranks_follow_the_rule_of_the_case(scoring, expected, named, right):
    assert scoring.ranks_match(finding(**named), expectation(scoring, **expected)) is right


def test_healthy_run_with_info_only_is_silent(scoring):
    scored = scoring.score(report(finding("gc-pause", severity="info"), verdict="healthy"), healthy(scoring))

    assert (scored.exact, scored.false_alarm, scored.found) == (True, False, "-")


def test_warning_on_a_healthy_run_is_a_false_alarm(scoring):
    scored = scoring.score(report(finding("gc-pause", severity="warning")), healthy(scoring))

    assert (scored.exact, scored.false_alarm) == (False, True)
    assert scored.problems == ("warning gc-pause", "verdict degraded")


@pytest.mark.parametrize("verdict", ["degraded", "failed", "not-examined", None])
def test_any_verdict_but_healthy_is_a_false_alarm_on_a_healthy_run(scoring, verdict):
    assert scoring.score(report(verdict=verdict), healthy(scoring)).false_alarm


def test_the_worst_of_repeated_runs_counts(scoring):
    good, late, missed = (
        scoring.score(report(*findings), expectation(scoring))
        for findings in ([finding()], [finding("slow-code"), finding()], [])
    )

    assert scoring.worst([good, late, good]) is late
    assert scoring.worst([late, missed, good]) is missed


def test_what_if_compares_medians_with_the_first_finding(scoring):
    result = scoring.what_if([10.0, 11.0, 30.0], [6.0, 6.6, 6.6], report(finding()), ["slow-data-loading"])

    assert result.measured == pytest.approx(0.4)
    assert result.difference_points == pytest.approx(2.0)
    assert result.within


def test_what_if_of_another_cause_predicts_nothing(scoring):
    result = scoring.what_if([10.0], [6.0], report(finding("gc-pause")), ["slow-data-loading"])

    assert (result.predicted, result.difference_points, result.within) == (None, None, False)


def test_what_if_keeps_a_missing_share_missing(scoring):
    cost = {"ms_per_step": 1.0, "share": 0.1, "recoverable_share": None}

    assert scoring.what_if([2.0], [1.0], report(finding(cost=cost)), ["slow-data-loading"]).predicted is None


@pytest.mark.parametrize(
    "output, seconds",
    [
        ("a\ntrain_seconds=3.25\n", 3.25),
        ("no time", None),
        ("train_seconds=1.0\ntrain_seconds=2.0\n", None),
        ("x train_seconds=1.0", None),
    ],
)
def test_training_time_is_one_line_of_its_own(scoring, output, seconds):
    assert scoring.train_seconds(output) == seconds


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"rank_rule": "most"}, "A-P02: rank_rule is 'most', write 'exact' or 'any'"),
        ({"place": {"any_of": ["("]}}, "A-P02: place '(' is no regular expression"),
    ],
)
def test_broken_expectation_is_named(scoring, changes, message):
    with pytest.raises(ValueError) as error:
        expectation(scoring, **changes)

    assert str(error.value).startswith(message)


def test_expectation_without_fields_says_which(scoring):
    with pytest.raises(ValueError, match="A-X: add title, command, causes, ranks, world_size"):
        scoring.Expected.from_json({"id": "A-X"})


P_BEGIN, P_END = "<!-- bench:p:begin -->", "<!-- bench:p:end -->"
C_BEGIN, C_END = "<!-- bench:c:begin -->", "<!-- bench:c:end -->"


def test_page_keeps_the_text_around_the_markers_and_other_families(modules):
    text = f"before\n{P_BEGIN}\nslow\n{P_END}\nbetween\n{C_BEGIN}\nold\n{C_END}\nafter\n"

    changed = modules["page"].replace_between_markers(text, "c", "new")

    assert changed == f"before\n{P_BEGIN}\nslow\n{P_END}\nbetween\n{C_BEGIN}\nnew\n{C_END}\nafter\n"


def test_page_without_markers_gets_them_at_its_end(modules):
    changed = modules["page"].replace_between_markers("before\n", "p", "new")

    assert changed == f"before\n\n{P_BEGIN}\nnew\n{P_END}\n"


def test_page_with_one_marker_is_left_alone(modules):
    with pytest.raises(ValueError, match="each once"):
        modules["page"].replace_between_markers(P_BEGIN, "p", "new")


def test_new_page_opens_with_an_introduction(modules, tmp_path):
    modules["page"].write_page(tmp_path / "docs" / "faults.md", {"c": "table"})

    written = (tmp_path / "docs" / "faults.md").read_text()
    assert written.startswith("# Faults on purpose")
    assert f"{P_BEGIN}\n{P_END}" in written
    assert f"{C_BEGIN}\ntable\n{C_END}" in written


def test_columns_that_are_empty_in_all_rows_are_left_out(modules):
    page = modules["page"]
    rows = [
        page.Row("A-N01", "small", "healthy", "", "", "", "yes", 9.62, 0.0122),
        page.Row("A-N02", "slow start", "healthy", "", "", "", "yes", 9.1, None),
    ]

    assert page.case_table(rows).splitlines() == [
        "| case | title | expected | exact? | seconds | overhead |",
        "| --- | --- | --- | --- | --- | --- |",
        "| A-N01 | small | healthy | yes | 9.6 | 1.22 % |",
        "| A-N02 | slow start | healthy | yes | 9.1 | - |",
    ]


def result_of(modules, case, made, exit_code=0):
    bench, running = modules["bench"], modules["running"]
    outcome = running.Outcome(exit_code, 12.0, "", made)
    scored = bench.score_outcome(outcome, case.expected, 0)
    return bench.Result(case, score=scored, outcomes=[outcome], exit_code=0)


def case_of(modules, expected):
    return modules["running"].Case("x", Path("x"), "train.py", expected)


def test_targets_are_met_where_everything_is_exact(modules, scoring):
    results = [
        result_of(modules, case_of(modules, expectation(scoring)), report(finding())),
        result_of(modules, case_of(modules, healthy(scoring)), report(verdict="healthy")),
    ]

    assert modules["bench"].missed_targets(results) == []
    assert modules["bench"].summary(results) == (
        "1 of 1 performance faults exact, 1 detected, 0 skipped; 0 false alarms on 1 healthy programs."
    )


def test_targets_name_false_alarms_and_misses(modules, scoring):
    results = [
        result_of(modules, case_of(modules, expectation(scoring)), report(verdict="healthy")),
        result_of(modules, case_of(modules, healthy(scoring)), report(finding("gc-pause"))),
    ]

    assert modules["bench"].missed_targets(results) == [
        "0 of 1 performance faults exact (0 skipped), 1 needed",
        "A-P02 not detected: no finding",
        "A-N01: critical gc-pause; verdict degraded",
    ]


def test_skipped_fault_is_not_counted_as_exact(modules, scoring):
    bench = modules["bench"]
    case = case_of(modules, expectation(scoring))
    found = [result_of(modules, case, report(finding())) for _ in range(20)]
    skipped = [bench.Result(case, skipped="needs a CUDA device, none here") for _ in range(2)]

    assert bench.missed_targets([*found, *skipped]) == []
    assert bench.missed_targets([*found[:19], *skipped, found[0]][:21]) == [
        "19 of 21 performance faults exact (2 skipped), 20 needed"
    ]


def test_another_exit_code_is_not_exact(modules, scoring):
    result = result_of(modules, case_of(modules, expectation(scoring)), report(finding()), exit_code=1)

    assert result.score.exact is False
    assert modules["bench"].missed_targets([result])[-1] == "A-P02: exit code is not 0"


def test_missing_report_is_a_miss_with_the_last_line_of_output(modules, scoring):
    outcome = modules["running"].Outcome(None, 240.0, "one\nlast line\n", None)
    scored = modules["bench"].score_outcome(outcome, expectation(scoring), 0)

    assert (scored.detected, scored.exact, scored.problems) == (False, False, ("no report, time-out: last line",))


def test_unknown_case_is_named(modules):
    with pytest.raises(ValueError, match="there is no case 'p99'"):
        modules["bench"].select(modules["running"].load_cases(), "p99", short=False)


def test_cases_are_found_by_folder_and_by_identifier(modules):
    chosen = modules["bench"].select(modules["running"].load_cases(), "p02, A-N01", short=False)

    assert [case.key for case in chosen] == ["p02", "n01"]


def test_short_selection_exists(modules):
    chosen = modules["bench"].select(modules["running"].load_cases(), None, short=True)

    assert [case.key for case in chosen] == list(modules["bench"].SHORT)


def test_every_case_of_the_catalogue_is_there_and_whole(modules):
    cases = modules["running"].load_cases()
    wanted = [f"p{n:02d}" for n in range(1, 23)] + ["f07"] + [f"n{n:02d}" for n in range(1, 13)]
    wanted += [f"c{n:02d}" for n in range(1, 16)] + ["c09s", "c13t"] + [f"nc{n}" for n in range(1, 7)]
    wanted += [f"d{n:02d}" for n in range(1, 42)] + [f"nd{n:02d}" for n in range(1, 13)]
    wanted += [f"e{n:02d}" for n in range(1, 10)]

    assert sorted(cases) == sorted(wanted)
    for key, case in cases.items():
        assert (case.folder / "train.py").exists()
        name = f"N-{key[1:]}" if key.startswith("nc") else f"A-{key}"
        assert case.expected.id.lower() == name.lower()
        assert case.expected.family == next((family for family in "cde" if family in key), "p")
        assert case.expected.healthy == key.startswith("n")
        assert case.expected.repaired is None or (case.folder / case.expected.repaired).exists()


def test_the_root_of_a_case_is_a_line_of_its_function(modules):
    for case in modules["running"].load_cases().values():
        root = case.expected.root
        if root is None:
            continue
        tree = ast.parse((case.folder / root.file).read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = [f.name for f in functions if f.lineno <= root.line <= (f.end_lineno or 0)]

        assert inside[-1:] == [root.function], case.key


def test_every_line_that_a_case_names_is_there(modules):
    for case in modules["running"].load_cases().values():
        for pattern in case.expected.place:
            named = re.fullmatch(r"(\w+)\\.py:(\d+)\$", pattern)
            if named:
                lines = (case.folder / f"{named[1]}.py").read_text().splitlines()
                assert lines[int(named[2]) - 1].strip(), f"{case.key}: {pattern}"


@pytest.mark.parametrize("path", sorted(FAULTS.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_programs_know_nothing_of_the_observer(path):
    assert "rankscope" not in path.read_text().lower()


@pytest.mark.parametrize("path", sorted(FAULTS.glob("*/expected.json")), ids=lambda path: path.parent.name)
def test_expected_commands_are_portable(path):
    command = json.loads(path.read_text())["command"]

    assert not any(part.startswith("/") for part in command)


def test_programs_run_in_a_process_group_that_ends_on_time_out(modules, tmp_path):
    outcome = modules["running"].run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, time_out_s=0.3)

    assert outcome.exit_code is None
    assert outcome.seconds < 30.0


def test_output_and_exit_code_of_a_program_are_kept(modules, tmp_path):
    program = "print('train_seconds=1.5'); raise SystemExit(3)"
    outcome = modules["running"].run([sys.executable, "-c", program], tmp_path)

    assert (outcome.exit_code, modules["scoring"].train_seconds(outcome.output)) == (3, 1.5)
