"""Dumps of py-spy and faulthandler, broken ones too."""

from __future__ import annotations

import faulthandler
import gzip
import json
import tempfile

import pytest

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.stack_dumps import StackDumps
from rankscope.records.imported.stack_dump import StackFrame


def read(path):
    return next(iter(StackDumps().read(path)))


def test_what_faulthandler_writes_here_is_read(tmp_path):
    path = tmp_path / "rank3.txt"
    with tempfile.TemporaryFile("w+") as out:
        faulthandler.dump_traceback(out)
        out.seek(0)
        path.write_text(out.read())

    table = read(path)

    assert StackDumps().recognises(path, path.read_bytes())
    assert table.rank == 3
    assert "test_what_faulthandler_writes_here_is_read" in [f.function for t in table.threads for f in t.frames]


def test_json_of_py_spy_is_read(tmp_path):
    path = tmp_path / "dump.json.gz"
    frame = {"name": "Trainer.step",
        "filename": "/home/me/train.py", "short_filename": "train.py", "line": 4, "locals": None}
    thread = {"pid": 7,
        "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": True}
    text = json.dumps([{**thread, "frames": [frame]}])
    path.write_bytes(gzip.compress(text.encode()))

    (one,) = read(path).threads

    assert StackDumps().recognises(path, text.encode())
    assert (one.pid, one.main, one.current, one.active) == (7, True, True, True)
    assert one.frames == (StackFrame("/home/me/train.py", 4, "Trainer.step"),)


@pytest.mark.parametrize(
    "text", ["",
        "[", '[{"frames": 3, "thread_id": 1, "owns_gil": '
             '0}]', "Process 3: x\nPython v3\n", "\x00\x01\xff", "[" * 200_000]
)
def test_what_holds_no_stack_is_unreadable(tmp_path, text):
    path = tmp_path / "dump.txt"
    path.write_text(text, encoding="latin-1")

    with pytest.raises(Unreadable):
        list(StackDumps().read(path))


def test_a_truncated_dump_gives_what_it_has(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_text('Process 3: python x.py\nPython v3.11\n\nThread 3 (idle): "MainThread"\n    f (x.py:3)\n    g (x.p')

    assert read(path).threads[0].frames == (StackFrame("x.py", 3, "f"),)


def test_a_log_is_no_dump(tmp_path):
    text = b'Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: x\n' + b"step 1 loss 2\n" * 99

    assert not StackDumps().recognises(tmp_path / "x.log", text)
