"""An evaluation loss that goes up while the training loss goes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.scalars.curves import Curve, level, noise

FEWEST: Final = 5
"""Evaluations; and three of them after the best one."""
WORSE: Final = 1.1
"""The evaluation loss at the end over its lowest level, for a remark; and further than its noise."""
MUCH_WORSE: Final = 1.5
"""For a warning: few would call that a success."""
STILL_FELL: Final = 0.9
"""Of the training loss at the best evaluation, what it is at the end at most."""


@dataclass(frozen=True, slots=True)
class Overfit:
    tag: str
    best_step: int
    last_step: int
    lowest: float
    end: float
    noise: float
    train_tag: str
    train_at_best: float
    train_at_end: float
    clear: bool
    """More than half above its best, or most of what it had learned is lost."""


def overfit(evaluation: Curve, train: Curve) -> Overfit | None:
    """None where the two curves do not show it."""
    c, t = evaluation.only(evaluation.finite), train.only(train.finite)
    values = c.values
    if len(values) < FEWEST or len(t.values) < FEWEST:
        return None
    # The lowest of three in a row: a single lucky evaluation is no level.
    middle = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    at = int(np.argmin(middle)) + 1
    if int(np.argmin(values)) == 0 and values[0] <= middle[0]:
        at = 0
    lowest, end, sigma = float(values[at] if at == 0 else middle[at - 1]), float(np.median(values[-3:])), noise(values)
    if lowest <= 0 or len(values) - at - 1 < 3 or end < max(WORSE * lowest, lowest + 3 * sigma):
        return None
    # It goes on rising: not one bad stretch that is over.
    if end < level(values[at:], 0.3, 0.8):
        return None
    near = np.argsort(np.abs(t.steps - c.steps[at]), kind="stable")[: max(3, len(t.steps) // 20)]
    at_best, at_end = float(np.median(t.values[near])), level(t.values, 0.9, 1)
    if not at_best > 0 or at_end > STILL_FELL * at_best:
        return None
    learned = float(values[0]) - lowest
    return Overfit(
        tag=c.tag,
        best_step=int(c.steps[at]),
        last_step=int(c.steps[-1]),
        lowest=lowest,
        end=end,
        noise=sigma,
        train_tag=t.tag,
        train_at_best=at_best,
        train_at_end=at_end,
        clear=end >= MUCH_WORSE * lowest or (learned > 0 and end - lowest >= learned / 2),
    )
