"""The seam for a new exporter: one file in `exporters/` that writes the report for another tool."""

from __future__ import annotations

from typing import ClassVar, TextIO

from rankscope.report.report import Report


class Exporter:
    """Writes a report in the format of another tool. Reads the report only and keeps no state."""

    name: ClassVar[str]
    """What the user writes after `--to`; the file is named like it."""

    def export(self, report: Report, out: TextIO) -> None:
        """Write the whole report to `out`. What the format cannot hold is left out, never written as 0."""
        raise NotImplementedError
