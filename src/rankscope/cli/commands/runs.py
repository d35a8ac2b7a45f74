"""`rankscope runs`: the history of one folder."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from rankscope.base.errors import UserError
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir

if TYPE_CHECKING:
    from rankscope.cli.history import Kept
    from rankscope.views.tables import RunRow

SCHEMA = "rankscope.runs/1"


class Runs(Command):
    """List the runs of a folder with their verdicts, oldest first."""

    name = "runs"
    example = "rankscope runs --runs-dir rankscope-runs"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="write the list as JSON")
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.history import history
        from rankscope.cli.output import layout
        from rankscope.views.tables import render_runs

        rows = [(kept, _row(kept)) for kept in history(runs_dir(args))]
        if args.json:
            print(json.dumps({"schema": SCHEMA, "runs": [_document(kept, row) for kept, row in rows]}, indent=2))
        else:
            sys.stdout.write(render_runs((row for _, row in rows), *layout(sys.stdout)))
        return 0


def _row(kept: Kept) -> RunRow:
    from rankscope.cli.history import read_report
    from rankscope.views.tables import RunRow, run_row

    if kept.manifest is None:
        return RunRow(kept.run.id, "", None, None, None, None, None, None, None, note=f"damaged: {kept.damage}")
    manifest, note = kept.manifest, "" if kept.state == "finished" else kept.state
    if kept.run.report.exists() and kept.state != "running":
        try:
            return run_row(read_report(kept.run))
        except UserError as error:
            note = f"damaged: {error}"
    return RunRow(
        manifest.id, manifest.name, manifest.started, manifest.duration_s, None, None, None, None, None,
        note=note or "no report",
    )  # fmt: skip


def _document(kept: Kept, row: RunRow) -> dict[str, object]:
    return {
        "id": row.id,
        "name": row.name,
        "folder": str(kept.run.root),
        "state": kept.state,
        "started": row.started,
        "duration_s": row.duration_s,
        "world_size": row.world_size,
        "steps": row.steps,
        "median_ms": row.median_ms,
        "verdict": row.verdict,
        "cause": row.cause,
        "note": row.note,
    }
