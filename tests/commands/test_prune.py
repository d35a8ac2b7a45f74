import os
import subprocess
import sys

import pytest


@pytest.fixture
def ids(add_run):
    made = [f"2026010{i}-100000-aa" for i in range(1, 5)]
    for id in made:
        add_run(id, median_ms=10.0)
    return made


def test_the_newest_stay(rankscope, runs, ids):
    code, out, error = rankscope("prune", "--keep", "1")

    assert (code, error) == (0, "")
    assert out == "".join(f"deleted {runs / id}\n" for id in ids[:3]) + f"1 of 4 runs stay in {runs}\n"
    assert os.listdir(runs) == ids[3:]


def test_damaged_and_foreign_folders_and_running_runs_stay(rankscope, runs, ids, add_run):
    (runs / ids[0] / "run.json").write_text("{")
    (runs / "theirs").mkdir()
    running = add_run("20260101-110000-aa", finished=False)
    code = (
        "import sys; from pathlib import Path; from rankscope.store.lock import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(running)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"locked\n"

    rankscope("prune", "--keep", "0")

    holder.communicate()
    assert sorted(os.listdir(runs)) == [ids[0], running.name, "theirs"]


@pytest.mark.parametrize("words", [["--keep", "-1"], ["--keep", "x"], []])
def test_a_wrong_number_ends_with_2_and_deletes_nothing(rankscope, runs, ids, words):
    code, _, error = rankscope("prune", *words)

    assert code == 2
    assert error.startswith("rankscope: ") and error.count("\n") == 1
    assert sorted(os.listdir(runs)) == ids


def test_a_folder_that_does_not_exist_is_said_to(rankscope, tmp_path):
    code, out, error = rankscope("prune", "--keep", "1", "--runs-dir", str(tmp_path / "none"))

    assert (code, out) == (2, "")
    assert error == f"rankscope: {tmp_path / 'none'}: there is no such folder; name one with --runs-dir\n"
