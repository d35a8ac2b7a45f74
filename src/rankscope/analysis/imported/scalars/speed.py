"""A run that becomes slower and stays so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.scalars.curves import LARGEST, MAD_TO_SIGMA, Curve

FEWEST: Final = 20
"""Points, and a quarter of them on each side of the change."""
SLOWER: Final = 1.2
"""Time per step after the change over that before."""
OUTSTANDING: Final = 5.0
"""Standard deviations of the points on either side between the two levels."""


@dataclass(frozen=True, slots=True)
class Drop:
    tag: str
    step: int
    before: float
    after: float
    noise: float
    ratio: float
    """How many times slower."""
    of_data: str | None
    """The tag of the time spent on data, where its rise explains most of it."""


def drop(curve: Curve, is_time: bool, data: Curve | None) -> Drop | None:
    """The change after which steps take longer for good; None where there is none."""
    c = curve.only(curve.finite & (curve.values > 1 / LARGEST))
    if len(c.values) < FEWEST:
        return None
    values = c.values if is_time else 1 / c.values  # seconds, up to a factor
    margin = max(FEWEST // 4, len(values) // 10)
    at = _change(values, margin)
    before, after = values[:at], values[at:]
    a, b = float(np.median(before)), float(np.median(after))
    # The wider of both sides: a level that wanders is no level.
    sigma = max(_spread(before), _spread(after))
    mixed = float(np.quantile(after, 0.2)) < float(np.quantile(before, 0.8))
    if b < SLOWER * a or b - a < OUTSTANDING * sigma or mixed:
        return None
    return Drop(
        tag=c.tag,
        step=int(c.steps[at]),
        before=a if is_time else 1 / a,
        after=b if is_time else 1 / b,
        noise=sigma if is_time else sigma / (a * a),
        ratio=b / a,
        of_data=_of_data(data, int(c.steps[at]), a, b) if is_time else None,
    )


def _change(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], margin: int) -> int:
    """Where two levels fit best, by ranks: outliers count no more than others."""
    count = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") - (count - 1) / 2
    sums = np.cumsum(ranks)[margin - 1 : count - margin]
    n = np.arange(margin, count - margin + 1)
    return int(np.argmin(sums / np.sqrt(n * (count - n)))) + margin


def _spread(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def _of_data(data: Curve | None, step: int, before: float, after: float) -> str | None:
    """Half of the rise or more is time in which data are waited for."""
    if data is None:
        return None
    good = data.only(data.finite)
    a, b = good.values[good.steps < step], good.values[good.steps >= step]
    if len(a) < FEWEST // 4 or len(b) < FEWEST // 4:
        return None
    return data.tag if float(np.median(b) - np.median(a)) >= (after - before) / 2 else None
