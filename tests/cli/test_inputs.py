"""What the user gives to `diagnose` is sorted into runs and files."""

from __future__ import annotations

import pytest

from rankscope.base.errors import UserError
from rankscope.cli import inputs
from rankscope.cli.inputs import sort_out


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_files_of_a_folder_come_in_order_and_hidden_ones_not_at_all(tmp_path):
    files = [touch(tmp_path / name) for name in ("b/1.json", "a/2.json", "c.log")]
    touch(tmp_path / ".git" / "HEAD")
    touch(tmp_path / ".hidden")

    found = sort_out([str(tmp_path)])

    assert found.files == (files[2], files[1], files[0])
    assert found.runs == ()


def test_a_run_in_a_folder_is_a_run_and_its_parts_are_no_files(tmp_path):
    touch(tmp_path / "run" / "manifest.json")
    touch(tmp_path / "run" / "store" / "part.bin")
    trace = touch(tmp_path / "trace.json")

    found = sort_out([str(tmp_path)])

    assert found.files == (trace,)
    assert [run.root for run in found.runs] == [tmp_path / "run"]


def test_a_file_given_twice_is_read_once(tmp_path):
    trace = touch(tmp_path / "trace.json")

    assert sort_out([str(trace), str(tmp_path), str(trace)]).files == (trace,)


def test_a_name_is_neither(tmp_path):
    assert sort_out([str(tmp_path), "my-run"]) is None


def test_a_folder_with_a_whole_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MOST_FILES", 3)
    for number in range(4):
        touch(tmp_path / f"{number}.log")

    with pytest.raises(UserError, match="more than 3 files"):
        sort_out([str(tmp_path)])
