"""What tables of a job's operations say: how much stragglers cost, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analysis.detector import MATERIAL
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner, Replayed
from rankscope.analysis.imported.optable.digest import TableDigest, digest
from rankscope.analysis.imported.optable.graph import Circular
from rankscope.analysis.imported.optable.layout import Layout, Unplaceable
from rankscope.analysis.imported.optable.merging import merged
from rankscope.analysis.imported.optable.shapes import Job, job
from rankscope.analysis.imported.optable.verdicts import verdicts
from rankscope.analysis.wording import percent
from rankscope.records.imported.operation_table import OperationTable
from rankscope.records.imported.table import Table

NAME = "pipeline-imbalance, slow-device, uneven-work"
NEEDS = "operations of at least two ranks and their dependencies"


class OperationTables(Examiner):
    reads = OperationTable

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, OperationTable)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        known = [d for d in digests if isinstance(d, TableDigest) and len(d)]
        if not known:
            return Answer(examined=False)
        rows, unused = merged(known)
        try:
            found = job(rows)
        except (Unplaceable, Circular) as error:
            return Answer(examined=False, not_examined=((NAME, NEEDS, str(error)),), unused=unused)
        whatif = found.whatif
        return Answer(
            findings=tuple(verdicts(found)) if whatif.ideal_ns > 0 else (),
            replayed=Replayed(
                slowdown=whatif.slowdown,
                by_rank=whatif.by_rank,
                by_stage={str(stage): s for stage, s in whatif.by_stage.items()},
                by_operation=whatif.by_operation,
                worker_share=whatif.worker_share,
                stage_share=whatif.stage_share,
            )
            if whatif.ideal_ns > 0
            else None,
            world_size=_world_size(found.where),
            steps=len(found.step_ns),
            step_ms=tuple((found.step_ns / 1e6).tolist()),
            examined=len(found.where.ranks) > 1,
            not_examined=tuple(_not_examined(found)),
            notes=_notes(found),
            unused=unused,
        )


def _world_size(where: Layout) -> int | None:
    """As the ranks count, where these are evenly spaced: with tensor parallelism one of each group is listed."""
    apart = np.unique(np.diff(where.ranks))
    if len(where.ranks) == 1 or len(apart) != 1 or where.ranks[0] != 0:
        return None
    return len(where.ranks) * int(apart[0])


def _notes(found: Job) -> tuple[str, ...]:
    where, rows = found.where, found.rows
    lost = [
        f"{count:,} rows {what}"
        for count, what in ((rows.dropped, "without a time or place left out"), (rows.repeated, "were there twice"))
        if count
    ]
    shape = f"{len(where.ranks)} ranks in {where.num_lanes} lanes of {where.num_stages} stages"
    return (f"{len(rows):,} operations of {len(found.step_ns)} steps, {shape}", *lost)


def _not_examined(found: Job) -> list[tuple[str, str, str]]:
    lacking = []
    where = found.where
    if len(where.ranks) < 2:
        lacking.append((NAME, NEEDS, "the table holds one rank: there is nobody to compare with"))
    expected = where.num_lanes * where.num_stages
    if len(where.ranks) < expected:
        lacking.append(
            (NAME, "all ranks", f"{expected - len(where.ranks)} of {expected} ranks are missing; their operations were "
             "taken to be as long as the mean")
        )  # fmt: skip
    elif found.filled < 1 - MATERIAL:
        share = percent(1 - found.filled)
        lacking.append(
            (NAME, "all operations", f"{share} of the operations are missing; they were taken to be like the mean")
        )
    if found.left_out:
        lacking.append((NAME, "steps of one shape", f"{found.left_out} steps have other operations than the rest"))
    if found.unmatched:
        lacking.append((NAME, "both ends of each transfer", f"{found.unmatched} transfers a step lack their other end"))
    if found.gaps >= 2 * MATERIAL:
        lacking.append(
            ("slow-data-loading, launch-bound", "the host's side", f"{percent(found.gaps)} of the time lies between "
             "operations and is explained by none of them")
        )  # fmt: skip
    slow = [(s, name) for name, s in found.whatif.by_operation.items() if s >= 1 + MATERIAL and _transfers(found, name)]
    lacking.extend(
        ("slow-link", "what each rank's network did", f"{name} takes longer in some places: it alone slows the job "
         f"{s:.2f} times")
        for s, name in sorted(slow, reverse=True)
    )  # fmt: skip
    return lacking


def _transfers(found: Job, group: str) -> bool:
    return any(kind.communicates and kind.group == group for kind in found.measured[0].block.kinds)
