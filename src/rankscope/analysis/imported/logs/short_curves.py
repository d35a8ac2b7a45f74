"""A loss that jumps in a log of so few steps that its curve cannot be judged by its statistics."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Final

from rankscope.analysis.imported.logs.digest import LogDigest
from rankscope.base.finding import Cost, Evidence, Finding

BEFORE: Final = 3
"""Points before the jump, all below it."""
HIGHER: Final = 1.3
"""The jump over the highest of them; and the point after it is as far up, for a single batch may be a hard one."""
OUTSTANDING: Final = 8.0
"""Times the usual difference of neighbours before it."""


def short_spike(log: LogDigest) -> Finding | None:
    """None where no two neighbouring points stand far above all that the log shows before them."""
    points = [(step, value) for step, value in log.few_losses if math.isfinite(value)]
    for i in range(BEFORE, len(points) - 1):
        level = max(value for _, value in points[i - BEFORE : i])
        value = min(points[i][1], points[i + 1][1])
        usual = median(abs(b - a) for (_, a), (_, b) in pairwise(points[:i]))
        if level > 0 and value > HIGHER * level and value - level > OUTSTANDING * usual:
            return _finding(log, points[i], level, usual)
    return None


def _finding(log: LogDigest, point: tuple[int, float], level: float, usual: float) -> Finding:
    step, value = point
    return Finding(
        cause="loss-spike",
        severity="warning",
        confidence=0.7,
        title=f"the loss jumps from {level:.4g} to {value:.4g} at step {step}; a log cannot tell where it comes from",
        ranks=(),
        all_ranks=True,
        phase=None,
        component="loss",
        location=None,
        first_step=step,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            Evidence("loss at the jump", value, ""),
            Evidence("highest of the three points before", level, ""),
            Evidence("usual difference of neighbours before", usual, ""),
        ),
        next=(
            "look at the batch of this step, at the gradient norm, the loss scale and the learning rate",
            "go on from a checkpoint before it; run it under `rankscope run` for the cause",
        ),
    )
