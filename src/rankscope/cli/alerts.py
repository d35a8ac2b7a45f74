"""Alerts of a run that goes on: what its recorder has found, told once."""

from __future__ import annotations

import json
import sys

from rankscope.base.rundir import RunDir
from rankscope.report.report import from_json
from rankscope.views.terminal import render_alert


class Alerts:
    """New findings of the run that is going on, one line each on stderr, each shown once."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._read = 0
        self._hanging: set[int] = set()

    def hangs(self, attempt: int) -> bool:
        """Whether it is proven, as far as was read, that no rank of an attempt makes progress, and why."""
        return attempt in self._hanging

    def show(self) -> None:
        """Print what is new. Raises OSError, ValueError or KeyError where the recorder left something unreadable."""
        with self._run.alerts.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]  # the recorder may be in the middle of a line
        self._read += len(whole)
        if not whole:
            return
        entries = [json.loads(line) for line in whole.splitlines()]
        self._hanging |= {entry.get("attempt", 1) for entry in entries if entry.get("hang")}
        for entry in entries:
            for line in entry.get("stall", ()):
                print(line, file=sys.stderr)
        wanted = {entry["finding"] for entry in entries if "finding" in entry}
        if not wanted:
            return
        report = from_json(self._run.report.read_text(encoding="utf-8"), str(self._run.report))
        for finding in report.findings:
            if finding.id in wanted:
                print(render_alert(finding, 100), file=sys.stderr)
