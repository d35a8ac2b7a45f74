"""A folder of runs, made up: no training, the same files."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.base.manifest import Manifest, write_manifest
from rankscope.base.rundir import RunDir
from rankscope.cli.main import main
from rankscope.report.report import Report, Step, to_json


@pytest.fixture(scope="session")
def made_up():
    spec = importlib.util.spec_from_file_location("made_up", Path(__file__).parents[1] / "report" / "made_up.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """The folder that commands look into here; the working directory too."""
    monkeypatch.setenv("RANKSCOPE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def add_run(runs, made_up):
    """`add_run(id, name="", median_ms=None, finished=True)`: a run with a report where it has a median."""

    def add(id: str, name: str = "", median_ms: float | None = None, finished: bool = True, **fields: object) -> Path:
        root = runs / id
        root.mkdir(parents=True)
        started = f"2026-01-{int(id[6:8]):02}T10:00:00Z"
        run = RunDir(root)
        write_manifest(
            run, Manifest(id, name or id, ("python", "train.py"), started, finished=finished, duration_s=12.5)
        )
        if median_ms is not None:
            step = Step(median_ms, median_ms * 1.1, 100)
            report = Report(
                run=made_up.run(id=id, name=name or id, started=started, duration_s=12.5), verdict="healthy", step=step
            )
            run.report.write_text(to_json(replace(report, **fields)))
        return root

    return add


@pytest.fixture
def rankscope(capsys):
    """`rankscope("runs", "--json")` -> (exit code, stdout, stderr)."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as error:
            code = error.code
        out = capsys.readouterr()
        return code, out.out, out.err

    return call
