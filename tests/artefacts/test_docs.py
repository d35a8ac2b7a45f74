"""Every format is in the page that says what `diagnose` reads, and every table has one who examines it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis.imported import examiners
from rankscope.analysis.imported.examiner import Examiner
from rankscope.artefacts import readers
from rankscope.artefacts.reader import Reader
from rankscope.base.plugins import load_all

PAGE = Path(__file__).resolve().parents[2] / "docs" / "artefacts.md"


@pytest.mark.parametrize("reader", load_all(readers, Reader), ids=lambda cls: cls.__name__)
def test_a_reader_stands_in_the_docs(reader):
    file = reader.__module__.rsplit(".", 1)[-1]

    assert f"| `{reader.name}` |" in PAGE.read_text()
    assert f"`readers/{file}.py`" in PAGE.read_text()
    assert reader.__doc__


@pytest.mark.parametrize("reader", load_all(readers, Reader), ids=lambda cls: cls.__name__)
def test_a_reader_recognises_nothing_in_noise(reader, tmp_path):
    path = tmp_path / "noise"
    for head in (b"\0" * 4096, bytes(range(256)) * 16, b"\xff\xd8\xff\xe0\0" * 100):
        assert not reader().recognises(path, head)


def test_no_two_examiners_read_the_same_table():
    read = [cls.reads for cls in load_all(examiners, Examiner)]

    assert len(read) == len(set(read))
