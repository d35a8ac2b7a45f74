"""What cannot be diagnosed ends with 2 and one line; real runs are diagnosed in tests/cli."""

import os

import pytest


def _line(answer):
    code, out, error = answer
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    "path, message",
    [
        ("no/such/folder", "rankscope: no/such/folder: does not exist; check the path, or see `rankscope runs`"),
        ("no-such-run", "rankscope: there is no run 'no-such-run' in "),
        ("foreign", "rankscope: foreign: there is no file in it"),
        ("file.txt", "rankscope: no file could be used; file.txt: is empty"),
    ],
)
def test_what_is_no_run(rankscope, tmp_path, path, message):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "file.txt").touch()

    assert _line(rankscope("diagnose", path)).startswith(message)


def test_a_damaged_manifest(rankscope, add_run):
    (add_run("20260101-100000-aa") / "run.json").write_bytes(b"\xff\xfe")

    assert "run.json: damaged or not of rankscope" in _line(rankscope("diagnose", "runs/20260101-100000-aa"))


def test_a_store_that_is_none(rankscope, add_run):
    root = add_run("20260101-100000-aa")
    (root / "store").write_text("not a folder")

    assert "store" in _line(rankscope("diagnose", "last"))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(rankscope, add_run):
    root = add_run("20260101-100000-aa")
    (root / "run.json").chmod(0)

    assert "cannot be read (Permission denied)" in _line(rankscope("diagnose", str(root)))


def test_a_report_that_cannot_be_written_is_refused_before_the_work(rankscope, add_run):
    add_run("20260101-100000-aa")

    assert _line(rankscope("diagnose", "last", "--report-json", "no/such/r.json")).startswith(
        "rankscope: no/such/r.json: its folder"
    )


def test_two_runs_are_for_compare(rankscope, add_run):
    add_run("20260101-100000-aa")

    assert "rankscope compare A B" in _line(rankscope("diagnose", "last", "last"))


def test_a_run_without_records_is_not_examined_and_compared_with_a_baseline(rankscope, add_run):
    add_run("20260101-100000-aa", "base", 10.0)
    root = add_run("20260102-100000-bb", "empty")

    code, out, error = rankscope("diagnose", str(root), "--baseline", "base", "--world-size", "2")

    assert code == 0
    assert out.startswith("NOT EXAMINED")
    assert "no process of the run was observed" in out
    assert "step, median" in out
    assert error.startswith("rankscope: --world-size is not needed: a run of rankscope knows its ranks\n")
    assert (root / "report.json").exists()


def test_a_store_that_was_deleted_is_missed(rankscope, add_run):
    root = add_run("20260101-100000-aa")
    (root / "spool").mkdir(exist_ok=True)
    (root / "spool" / "0000000007.done").touch()

    line = _line(rankscope("diagnose", "last"))

    assert "store: does not hold what was recorded (7 batches were committed, it has 0)" in line
