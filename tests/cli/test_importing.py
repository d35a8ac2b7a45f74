"""Every file that is given is used or listed with the reason, whatever a reader does."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankscope.analysis.imported import examination
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.cli import importing
from rankscope.records.imported.table import Table
from rankscope.report.imported import imported_report
from rankscope.report.report import InputFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Table):
    words: tuple[str, ...]


class WordReader(Reader):
    name = "words"

    def recognises(self, path, head):
        return head.startswith(b"words")

    def read(self, path):
        text = path.read_text()
        if "broken" in text:
            raise Unreadable("broken at byte 7")
        yield Words(file=str(path), rank=None, words=tuple(text.split()))
        if "half" in text:
            raise Unreadable("truncated after 1 word")
        if "wrong" in text:
            raise KeyError("a fault of ours")


class WordExaminer(Examiner):
    reads = Words

    def digest(self, table):
        return Digest(table.file, len(table.words))

    def examine(self, digests, world_size):
        finding = Finding(
            cause="dead-rank", severity="critical", confidence=0.9, title="rank 1 died", ranks=(1,), all_ranks=False,
            phase=None, component=None, location=None, first_step=None, last_step=None, cost=Cost(None, None, None),
            evidence=(Evidence("words", sum(d.rank for d in digests), "count"),),
        )  # fmt: skip
        return Answer((finding,), world_size=4, unused={d.file: "twice the same" for d in digests[1:]})


@pytest.fixture(autouse=True)
def words(monkeypatch):
    monkeypatch.setattr(importing, "_readers", lambda: (WordReader,))
    monkeypatch.setattr(examination, "_examiners", lambda: {"WordExaminer": WordExaminer})


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def files_of(found):
    return [one.file for one in found]


def test_a_file_is_used_or_says_why_not(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "swallow", lambda doing, error: None)
    good, broken, half, wrong, strange, empty = (
        write(tmp_path / name, text)
        for name, text in (
            ("good", "words a b"), ("broken", "words broken"), ("half", "words half"), ("wrong", "words wrong"),
            ("strange", "nothing of ours"), ("empty", ""),
        )
    )  # fmt: skip
    told = []

    found = importing.read_all([good, broken, half, wrong, strange, empty], told.append)

    assert files_of(found) == [
        InputFile(str(good), "words", True),
        InputFile(str(broken), "words", False, "broken at byte 7"),
        InputFile(str(half), "words", True, "truncated after 1 word"),
        InputFile(str(wrong), "words", True, "could not be read as words (KeyError: 'a fault of ours')"),
        InputFile(str(strange), "unknown", False, "is of no kind that rankscope reads"),
        InputFile(str(empty), "unknown", False, "is empty"),
    ]
    assert told == [1, 2, 3, 4, 5, 6]


def test_files_in_an_archive_are_named_by_archive_and_member(tmp_path):
    inner = write(tmp_path / "a.txt", "words a")
    archive = tmp_path / "all.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(inner, "deep/a.txt")

    (found,) = importing.read_all([archive], lambda done: None)

    assert found.file == InputFile(f"{archive}:deep/a.txt", "words", True)
    assert found.kept[0].digest == Digest(f"{archive}:deep/a.txt", 2)


def test_a_special_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    (found,) = importing.read_all([tmp_path / "pipe"], lambda done: None)

    assert found.file == InputFile(str(tmp_path / "pipe"), "unknown", False, "is no regular file")


def test_the_report_lists_all_and_the_examiner_has_the_last_word(tmp_path):
    paths = [write(tmp_path / name, "words x") for name in ("one", "two")] + [write(tmp_path / "other", "?")]

    report = imported_report("job", importing.read_all(paths, lambda done: None), None)

    assert report.verdict == "failed"
    assert [(f.id, f.cause, f.ranks) for f in report.findings] == [("f1", "dead-rank", (1,))]
    assert [(f.used, f.why_not) for f in report.files] == [
        (True, None), (False, "twice the same"), (False, "is of no kind that rankscope reads"),
    ]  # fmt: skip
    assert report.run.world_size == 4
    assert report.run.id == "job"


def test_nothing_usable_is_not_examined(tmp_path):
    report = imported_report("job", importing.read_all([write(tmp_path / "x", "?")], lambda done: None), None)

    assert report.verdict == "not-examined"
    assert report.findings == ()


def test_files_that_are_read_on_several_cpus_come_in_the_order_given(tmp_path, monkeypatch):
    paths = []
    for rank in range(4):
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5 + rank, "pid": 1, "tid": 1}
        paths.append(write(tmp_path / f"rank{rank}.json", json.dumps({"schemaVersion": 1, "traceEvents": [event] * 9})))
    monkeypatch.undo()  # the processes that read have the real readers
    alone = importing.read_all(paths, lambda done: None)
    monkeypatch.setattr(importing, "WORTH_A_POOL", 0)
    monkeypatch.setattr(importing.os, "sched_getaffinity", lambda pid: {0, 1})
    told = []

    together = importing.read_all(paths, told.append)

    assert files_of(together) == files_of(alone)
    assert [one.kept[0].digest.rank for one in together] == [0, 1, 2, 3]
    assert told == [1, 2, 3, 4]


def test_a_process_that_is_killed_costs_its_file_and_no_other(tmp_path, monkeypatch):
    good, bad = write(tmp_path / "good.txt", "words a"), write(tmp_path / "bad.txt", "words b")
    fork = multiprocessing.get_context("fork")  # its processes have the readers of this test
    monkeypatch.setattr(importing.multiprocessing, "get_context", lambda kind: fork)
    monkeypatch.setattr(WordReader, "read", dying(WordReader.read))

    found = importing._in_parallel([good, bad], [good, bad], 1, lambda done: None)

    assert files_of(found) == [
        InputFile(str(good), "words", True),
        InputFile(str(bad), "unknown", False, "the process that read it was killed; is there memory enough?"),
    ]


def dying(read):
    def killed(self, path):
        if path.name == "bad.txt":
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, path)

    return killed
