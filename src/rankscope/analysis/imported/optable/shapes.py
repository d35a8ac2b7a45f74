"""A job put together for replays: its grid of ranks, its steps as blocks, its graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.optable.digest import TableDigest
from rankscope.analysis.imported.optable.effects import Means, means
from rankscope.analysis.imported.optable.grid import Floats, blocks
from rankscope.analysis.imported.optable.layout import Layout, Unplaceable, layout
from rankscope.analysis.imported.optable.replay import Measured
from rankscope.analysis.imported.optable.whatif import WhatIf, measured, whatif


@dataclass(frozen=True, slots=True)
class Job:
    """All that the verdicts look at."""

    rows: TableDigest
    where: Layout
    measured: list[Measured]
    whatif: WhatIf
    means: Means
    step_ns: Floats
    """[step] from the first start to the last end, of all steps that were replayed."""
    left_out: int
    """Steps that fit into no shape."""
    unmatched: int
    """Transfers whose other end is not in the table."""
    filled: float
    """Share of the operations of the grid that were recorded."""

    @property
    def gaps(self) -> float:
        """Share of the measured time that no operation and no dependency accounts for: loading data, launching."""
        mean = float(self.step_ns.mean())
        return max(0.0, 1 - self.whatif.actual_ns / mean) if mean > 0 else 0.0


def job(rows: TableDigest) -> Job:
    """Raises `Unplaceable` or `Circular` where no graph can be made of it."""
    where = layout(rows)
    found, left_out = blocks(rows, where)
    if not any(b.duration.size for b in found):
        raise Unplaceable("no step has an operation that most ranks have")
    if not any(np.nansum(b.duration) > 0 for b in found):
        raise Unplaceable("no operation lasts any time")
    jobs = measured(found, where.num_stages)
    total = whatif(jobs, where)
    spans, filled, size = [], 0, 0
    for block in found:
        for step in range(len(block.steps)):
            ends = block.end[:, step]
            spans.append(float(np.fmax.reduce(ends, axis=None, initial=0.0)))
        filled += int(np.isfinite(block.duration).sum())
        size += block.duration.size
    return Job(
        rows,
        where,
        jobs,
        total,
        means(jobs, where),
        np.array(spans),
        left_out,
        sum(m.graph.unmatched for m in jobs),
        filled / size,
    )
