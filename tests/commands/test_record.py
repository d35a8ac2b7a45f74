"""The recorder alone: how it ends. With a run around it, it is tested in tests/cli."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("word", [b"finish\n", b"finish\nfinish\n"])
def test_ends_when_told_and_leaves_an_empty_store(add_run, word):
    root = add_run("20260101-100000-aa", finished=False)

    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "record", str(root), "--supervised"],
        input=word, capture_output=True, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (root / "store").is_dir()


def test_refuses_a_folder_that_is_no_run(rankscope, tmp_path):
    code, _, error = rankscope("record", str(tmp_path))

    assert code == 2
    assert error == f"rankscope: {tmp_path}: no run folder of rankscope (it has no run.json); see `rankscope runs`\n"
