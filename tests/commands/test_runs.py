import json


def test_lists_runs_oldest_first_with_verdict_and_step(rankscope, add_run):
    add_run("20260102-100000-bb", "second", 20.0)
    add_run("20260101-100000-aa", "first", 10.0)

    code, out, _ = rankscope("runs")

    assert code == 0
    lines = [line.split() for line in out.splitlines()[1:]]
    assert [line[0] for line in lines] == ["20260101-100000-aa", "20260102-100000-bb"]
    assert [line[-3:] for line in lines] == [["10.0", "ms", "healthy"], ["20.0", "ms", "healthy"]]


def test_json_holds_what_the_table_shows(rankscope, add_run):
    root = add_run("20260101-100000-aa", "first", 10.0)

    _, out, _ = rankscope("runs", "--json")

    assert json.loads(out) == {
        "schema": "rankscope.runs/1",
        "runs": [
            {
                "id": "20260101-100000-aa",
                "name": "first",
                "folder": str(root),
                "state": "finished",
                "started": "2026-01-01T10:00:00Z",
                "duration_s": 12.5,
                "world_size": 4,
                "steps": 500,
                "median_ms": 10.0,
                "verdict": "healthy",
                "cause": None,
                "note": "",
            }
        ],
    }


def test_an_empty_or_missing_folder_is_no_error(rankscope):
    assert rankscope("runs") == (0, "no runs yet; `rankscope run -- COMMAND` makes the first\n", "")


def test_damaged_folders_are_listed_with_the_reason_and_foreign_ones_left_out(rankscope, add_run, runs):
    add_run("20260101-100000-aa", "whole", 10.0)
    (add_run("20260102-100000-bb") / "run.json").write_text("{")
    (add_run("20260103-100000-cc") / "run.json").write_text('{"theirs": 1}')
    (add_run("20260104-100000-dd", "torn report") / "report.json").write_text('{"schema": "rankscope.rep')
    (add_run("20260105-100000-ee") / "run.json").unlink()
    (runs / "20260105-100000-ee" / "spool").mkdir()
    (runs / "somebody-elses").mkdir()

    code, out, error = rankscope("runs", "--json")

    assert (code, error) == (0, "")
    notes = {run["id"]: run["note"] for run in json.loads(out)["runs"]}
    assert set(notes) == {f"2026010{i}-100000-{x}{x}" for i, x in enumerate("abcde", 1)}
    assert notes["20260101-100000-aa"] == ""
    assert "damaged or not of rankscope" in notes["20260102-100000-bb"]
    assert "no manifest of rankscope" in notes["20260103-100000-cc"]
    assert "report.json: " in notes["20260104-100000-dd"]
    assert "it has no run.json" in notes["20260105-100000-ee"]


def test_a_run_that_nobody_saw_end_says_so(rankscope, add_run):
    add_run("20260101-100000-aa", finished=False)

    assert rankscope("runs")[1].rstrip().endswith("ended unseen")


def test_no_line_is_wider_than_100_columns(rankscope, add_run):
    (add_run("20260102-100000-bb", "n" * 150) / "run.json").write_text("{" * 150)
    add_run("20260101-100000-aa", "n" * 150, 10.0)

    assert max(map(len, rankscope("runs")[1].splitlines())) <= 100
