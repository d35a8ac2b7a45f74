"""What observing the run cost it, from the run itself."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.host import StackSample
from rankscope.records.training import Step

SAMPLE_COST_NS = 60_000
"""One stack sample, the switch of the interpreter to the sampling thread and back included (measured, `make bench`)."""


def measure_overhead(facts: Facts) -> tuple[float | None, str]:
    """(share of the step time, how it was measured); None where there are no steps.

    Every hook times itself; to that comes the sampling thread. The median over the steps is taken, so that a step that
    was interrupted by something else does not count as our cost.
    """
    if not facts.enough or facts.inference:
        return None, "not measured: too few training steps"
    shares = []
    for position in range(facts.size):
        rows = facts.rows(Step, position)
        own = column(rows, Step, "own_ns").astype(np.float64)
        duration = rows["duration_ns"].astype(np.float64)
        good = duration > 0
        if not good.any():
            continue
        samples = facts.rows(StackSample, position)
        per_ns = len(samples) * SAMPLE_COST_NS / max(1, facts.span_ns)
        shares.append(float(np.median(own[good] / duration[good])) + per_ns)
    if not shares:
        return None, "not measured: no steps in the window"
    return max(shares), "every hook times itself (median over steps, worst rank), plus the stack samples"
