import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.analysis.detectors.cpu_contention import STRANGERS_CPUS
from rankscope.cli.commands.demo import FAULTS
from rankscope.cli.demo_programs import __path__ as programs


def test_every_fault_has_its_program():
    assert sorted(path.stem.replace("_", "-") for path in Path(next(iter(programs))).glob("*.py")) == sorted(FAULTS)


def test_without_torch_one_line_says_so(rankscope, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))

    code, out, error = rankscope("demo")

    assert (code, out) == (2, "")
    assert error == (
        f"rankscope: the demo trains with torch, which {sys.executable} has not; `pip install torch` first\n"
    )


def test_an_unknown_fault_ends_with_2_and_the_known_ones(rankscope):
    code, _, error = rankscope("demo", "no-fault")

    assert code == 2
    assert all(fault in error for fault in FAULTS)


def cpu_s_of_others():
    """CPU time that the machine has spent so far on whatever was not started here."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    spent = (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent - ours.ru_utime - ours.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, function, ranks",
    [("slow-data-loading", "decompress", [1]), ("slow-code", "rare_words", [0, 1]), ("gc-pause", None, [1])],
)
def test_what_is_hidden_is_found(tmp_path, fault, function, ranks):
    before = cpu_s_of_others()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "demo", fault, "--report-json", "r.json"],
        cwd=tmp_path, env={**os.environ, "RANKSCOPE_RUNS_DIR": "runs"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    others = (cpu_s_of_others() - before) / (time.monotonic() - began)

    assert done.returncode == 0, done.stderr
    (page,) = (tmp_path / "runs").glob("*/report.html")
    assert f"HTML report in {page}" in done.stderr
    findings = {one["cause"]: one for one in json.loads((tmp_path / "r.json").read_text())["findings"]}
    if others > STRANGERS_CPUS / 2:  # a machine that others use too may rightly be blamed as well
        findings.pop("cpu-contention", None)
    assert next(iter(findings)) == fault
    assert findings[fault]["ranks"] == ranks
    if function:
        assert findings[fault]["location"]["function"] == function
