"""What every detector, source, exporter and command must have: a name, a test, a line of docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope.analysis import detectors
from rankscope.analysis.detector import Detector
from rankscope.base.causes import CAUSES
from rankscope.base.plugins import load_all
from rankscope.capture import sources
from rankscope.capture.source import Source
from rankscope.cli import commands
from rankscope.cli.command import Command
from rankscope.cli.main import make_parser
from rankscope.records.record import Record
from rankscope.views import exporters
from rankscope.views.exporter import Exporter

HERE = Path(__file__).parent
KINDS = {
    "detectors": (detectors, Detector),
    "sources": (sources, Source),
    "exporters": (exporters, Exporter),
    "commands": (commands, Command),
}
ALL = [(kind, cls) for kind, (package, base) in KINDS.items() for cls in load_all(package, base)]
SHARED_TESTS = sorted((HERE / "capture").glob("test_*.py"))
"""Of sources: one real run shows what several of them write, `seen.of("collective")`."""


@pytest.mark.parametrize("kind, cls", ALL, ids=lambda v: v if isinstance(v, str) else v.name)
class TestEachPlugin:
    def test_file_class_and_name_agree(self, kind, cls):
        stem = cls.__module__.rsplit(".", 1)[1]

        assert cls.name == stem.replace("_", "-")
        assert cls.__name__ == stem.title().replace("_", "")

    def test_says_what_it_is(self, kind, cls):
        assert cls.__doc__
        assert cls.__doc__.splitlines()[0].endswith((".", "?"))

    def test_has_a_test_file(self, kind, cls):
        stem = cls.__module__.rsplit(".", 1)[1]
        emitted = {record.kind for record in cls.emits} if kind == "sources" else set()
        asked = {word for file in SHARED_TESTS for word in re.findall(r'\bof\("(\w+)"', file.read_text())}

        assert (emitted and emitted <= asked) or (HERE / kind / f"test_{stem}.py").exists()

    def test_has_a_line_in_the_docs(self, kind, cls):
        lines = (HERE.parent / "docs" / f"{kind}.md").read_text().splitlines()

        assert [line for line in lines if f"`{cls.name}`" in line]


@pytest.mark.parametrize("cls", [cls for kind, cls in ALL if kind == "detectors"], ids=lambda cls: cls.name)
def test_a_detector_names_a_cause_of_the_catalogue_and_says_what_to_do(cls):
    assert cls.name in CAUSES
    assert all(issubclass(kind, Record) for kind in cls.needs)
    for section in ("What it is", "What shows it", "What else looks like it", "What to do"):
        assert section in cls.__doc__


@pytest.mark.parametrize("cls", [cls for kind, cls in ALL if kind == "commands"], ids=lambda cls: cls.name)
class TestEachCommand:
    def test_its_example_is_a_command_line_that_we_understand(self, cls):
        words = cls.example.split()

        assert words[:2] == ["rankscope", cls.name]
        make_parser().parse_args(words[1:])

    def test_its_help_shows_the_example(self, cls, capsys):
        with pytest.raises(SystemExit):
            make_parser().parse_args([cls.name, "--help"])

        assert " ".join(cls.example.split()) in " ".join(capsys.readouterr().out.split())


def test_the_help_shows_one_example_and_no_internal_command(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--help"])
    out = capsys.readouterr().out

    assert "example: rankscope run -- torchrun" in out
    assert "record" not in out.replace("recorded", "")
