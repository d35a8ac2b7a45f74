import json

import pytest

from rankscope.report.report import BudgetLine, Step


def _step(median, data):
    lines = (BudgetLine("data", 1, data, data / median), BudgetLine("forward", 0, median - data, 1 - data / median))
    return Step(median, median * 1.05, 400, lines)


@pytest.fixture(autouse=True)
def two_runs(add_run):
    add_run("20260101-100000-aa", "before", 10.0, step=_step(10.0, 2.0))
    add_run("20260102-100000-bb", "after", 15.0, step=_step(15.0, 7.0))


def test_says_what_became_slower_and_what_did_not(rankscope):
    code, out, error = rankscope("compare", "before", "after")

    assert (code, error) == (0, "")
    lines = {line.strip().split("  ")[0]: " ".join(line.split()) for line in out.splitlines() if line.strip()}
    assert lines["step, median"] == "step, median 10.0 ms 15.0 ms 1.5x slower by 5.00 ms"
    assert lines["data"] == "data 2.00 ms 7.00 ms 3.5x slower by 5.00 ms"
    assert lines["forward"] == "forward 8.00 ms 8.00 ms 1.00x inside noise"


def test_report_files_are_compared_too_and_json_is_written(rankscope, runs, tmp_path):
    files = [str(runs / id / "report.json") for id in ("20260101-100000-aa", "20260102-100000-bb")]

    code, _, error = rankscope("compare", *files, "--report-json", "out.json")

    assert (code, error) == (0, "rankscope: report written to out.json\n")
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["schema"] == "rankscope.compare/1"
    assert (out["change"], out["same_setup"]) == ("slower", True)
    assert out["a"]["phases_ms"] == {"data": 2.0, "forward": 8.0}
    assert out["noise_ms"] < 1


def test_equal_runs_are_inside_noise(rankscope):
    assert "inside noise" in rankscope("compare", "before", "before")[1]


def test_a_file_that_is_no_report_ends_with_2_and_names_the_field(rankscope, tmp_path):
    (tmp_path / "x.json").write_text('{"schema": "other/1"}')

    code, out, error = rankscope("compare", "x.json", "after")

    assert (code, out) == (2, "")
    assert error.startswith("rankscope: x.json: field schema is 'other/1'")
