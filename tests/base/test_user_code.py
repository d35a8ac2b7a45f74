"""Whose a file is, told from its path."""

import os
import threading

import pyarrow as pa
import pytest

from rankscope.base.user_code import is_library, is_torch
from rankscope.capture import callsite
from rankscope.recorder.source_files import keep_sources


@pytest.mark.parametrize(
    "file, answer",
    [
        ("/home/u/train.py", False),
        ("train.py", False),
        ("/home/u/torch/train.py", False),
        ("/home/u/lib/python/train.py", False),
        ("/home/u/site-packages-of-mine.py", False),
        ("/opt/x/rankscope/cli/demo_programs/slow_code.py", False),
        ("/home/u/venv/lib/python3.11/site-packages/torch/_tensor.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", True),
        ("/usr/lib/python3.9/threading.py", True),
        ("/usr/lib64/python3.12/threading.py", True),
        ("/home/u/.pyenv/versions/3.13.1/lib/python3.13t/os.py", True),
        ("/opt/x/rankscope/capture/ring.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("<string>", True),
        ("<eval_with_key>.3", True),
        ("", True),
    ],
)
def test_the_path_tells_whose_a_file_is(file, answer):
    assert is_library(file) is answer


def test_folders_that_a_process_names_are_no_user_s():
    folders = ("/home/u/pytorch/torch", "/opt/python/stdlib/")

    files = ("/home/u/pytorch/torch/_tensor.py", "/opt/python/stdlib/os.py", "/home/u/pytorch/torchtrain.py")

    assert [is_library(file, folders) for file in files] == [True, True, False]


def test_torch_is_where_its_process_says_else_among_the_packages():
    installed, built = "/v/lib/python3.11/site-packages/torch/_tensor.py", "/home/u/pytorch/torch/_tensor.py"
    project = "/home/u/torch/train.py"

    assert [is_torch(file) for file in (installed, built, project)] == [True, False, False]
    assert [is_torch(file, "/home/u/pytorch/torch") for file in (installed, built, project)] == [False, True, False]


def test_files_of_a_torch_built_from_source_are_not_kept(tmp_path):
    files = [tmp_path / "torch" / "_tensor.py", tmp_path / "train.py"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("pass\n")
    places = pa.table({"text": [f"{file}:1:f" for file in files]})

    kept = keep_sources(tmp_path / "sources", places, (str(tmp_path / "torch"),))

    assert (kept, [path.name[17:] for path in (tmp_path / "sources").iterdir()]) == (1, ["train.py"])


def test_recording_and_analysing_agree(monkeypatch):
    monkeypatch.setattr(callsite, "_folders", [os.path.dirname(os.__file__), "/home/u/pytorch/torch"])
    monkeypatch.setattr(callsite, "_library", {})
    files = ("/home/u/pytorch/torch/_tensor.py", threading.__file__, "<string>", "/home/u/train.py")

    codes = [compile("0", file, "exec") for file in files]

    assert [callsite.is_library(code) for code in codes] == [True, True, True, False]
    assert [is_library(file, ("/home/u/pytorch/torch",)) for file in files] == [True, True, True, False]
