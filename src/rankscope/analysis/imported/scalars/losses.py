"""How a loss went: jumps, a rise for good, values that are no numbers, a loss that stays where it began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.scalars.curves import MAD_TO_SIGMA, Curve, Floats, level, noise

BEFORE: Final = 15
"""Points whose median is the level that a jump stands above."""
HIGH: Final = 2.0
"""A jump is so many times its level at least."""
HIGHER, SEVERAL = 1.25, 3
"""Or so many times, in so many points in a row: a language model at 2.7 that stays at 4.4 for a while. A single point
may be one odd batch."""
OUTSTANDING: Final = 10.0
"""And so many standard deviations of the noise around it: losses have heavy tails, but not such ones."""
OUTSTANDING_RATIO: Final = 6.0
"""The same for the logarithm: losses of few samples vary by factors."""
CLEAR_RATIO: Final = 10.0
"""The same for more than a remark."""
SMALLEST_NOISE: Final = 0.02
"""Of the level: a loss that hardly varies is not therefore known to a thousandth."""
LONG: Final = 10
"""Points above half of its height that make a jump more than one bad batch."""
RESTART: Final = 2.0
"""A learning rate that rises so many times lifts the loss on purpose: a schedule with restarts."""
LOST: Final = 0.5
"""Of what a loss has fallen, the part that has to be lost again for it to have gone wrong for good."""
FEWEST: Final = 30
"""Points below which only values that are no numbers are spoken of."""
FEWEST_FLAT: Final = 100
"""Points without a fall: fewer may be a warm-up."""
FELL: Final = 0.05
"""Of the first level, by which any loss falls that learns something, be it only how often each answer is right."""
NOT_FINITE: Final = 3
"""Points in a row up to the end that are no numbers: a single one may be a step that the scaler left out."""


@dataclass(frozen=True, slots=True)
class Jump:
    step: int
    level: float
    value: float
    noise: float
    lasted: int
    """Points until it was back at half of its height."""
    back: bool
    severe: bool
    """Far outside of the noise, and higher than at the very start: for a while, all that was learned was gone."""


@dataclass(frozen=True, slots=True)
class Rise:
    """A loss that goes up and stays there."""

    step: int
    """Of its lowest level."""
    lowest: float
    end: float
    early: float
    """Level of the first tenth."""
    noise: float


@dataclass(frozen=True, slots=True)
class NotFinite:
    step: int
    count: int
    last_finite: float | None
    what: str
    """`NaN` or `infinite`."""


@dataclass(frozen=True, slots=True)
class Flat:
    first: float
    end: float
    noise: float
    points: int
    last_step: int


def not_finite(curve: Curve) -> NotFinite | None:
    """Where the loss stopped being a number, if it did so for good."""
    good = np.flatnonzero(curve.finite)
    first = int(good[-1]) + 1 if len(good) else 0
    count = len(curve.values) - first
    if count < NOT_FINITE:
        return None
    what = "NaN" if np.isnan(curve.values[first]) else "infinite"
    return NotFinite(int(curve.steps[first]), count, float(curve.values[first - 1]) if first else None, what)


def jumps(curve: Curve, rate: Curve | None) -> list[Jump]:
    """Points far above the level before them, in order."""
    c = curve.only(curve.finite)
    values = c.values
    if len(values) < 2 * BEFORE or float(values.min()) < 0:
        return []
    usual, start = noise(values), float(np.median(values[:5]))
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    factor = max(noise(logs), SMALLEST_NOISE)
    ratio = max(HIGHER, _exp(OUTSTANDING_RATIO * factor))
    bases = np.median(np.lib.stride_tricks.sliding_window_view(values, BEFORE), axis=1)[:-1]
    found: list[Jump] = []
    free = 0  # the first point that is no part of the jump before
    for i in (BEFORE + np.flatnonzero(_above(values[BEFORE:], bases, ratio))).tolist():
        before, base = values[i - BEFORE : i], float(bases[i - BEFORE])
        # A quiet moment is not the measure of the next one: the usual noise of the run counts as well.
        around = MAD_TO_SIGMA * float(np.median(np.abs(before - base)))
        sigma = max(around, usual, SMALLEST_NOISE * base)
        if i < free or values[i] < base + OUTSTANDING * sigma or _ragged(before, values[i]):
            continue
        below = np.flatnonzero(values[i:] < base + (values[i] - base) / 2)
        lasted = int(below[0]) if len(below) else len(values) - i
        if values[i] < HIGH * base and lasted < SEVERAL:
            continue
        back = len(below) > 0 or lasted < LONG
        if not _lifted(rate, int(c.steps[i]), int(c.steps[i - BEFORE])):
            severe = lasted >= SEVERAL and values[i] > start and values[i] / base > _exp(CLEAR_RATIO * factor)
            found.append(Jump(int(c.steps[i]), base, float(values[i]), sigma, lasted, back, bool(severe)))
        free = i + max(lasted, 1) + BEFORE // 3
    return found


def _exp(power: float) -> float:
    """e to this, as far as there are numbers for it."""
    return float(np.exp(min(power, 700.0)))


def _above(values: Floats, bases: Floats, ratio: float) -> NDArray[np.bool_]:
    """Where a value is so many times its level; a level of 0 has no ratio."""
    with np.errstate(over="ignore"):  # what is larger than any number is not reached
        return np.asarray((values >= ratio * bases) & (bases > 0))


def _ragged(before: Floats, value: float) -> bool:
    """Whether the points before reach half as high themselves: such curves jump by nature."""
    base = float(np.median(before))
    return float(before.max()) - base > (value - base) / 2


def rise(curve: Curve, rate: Curve | None) -> Rise | None:
    """A loss that has lost most of what it had learned, and stays there."""
    c = curve.only(curve.finite)
    values = c.values
    if len(values) < FEWEST or float(values.min()) < 0:
        return None
    width = max(5, len(values) // 20)
    smooth = _smooth(values, width)
    at = int(np.argmin(smooth))
    early, end, lowest = level(values, 0, 0.1), level(values, 0.9, 1), float(smooth[at])
    sigma = max(noise(values), SMALLEST_NOISE * lowest)
    after = values[at + width :]
    if len(after) < width or end - lowest < LOST * (max(early, lowest) - lowest) or end < lowest + OUTSTANDING * sigma:
        return None
    # Not one jump on its way back: the last quarter of what follows is no lower than what came before it.
    if level(after, 0.75, 1) < 0.9 * level(after, 0.25, 0.75) or _lifted(rate, int(c.steps[-1]), int(c.steps[at])):
        return None
    return Rise(int(c.steps[min(len(values) - 1, at + width // 2)]), lowest, end, early, sigma)


def flat(curve: Curve, rate: Curve | None, start: float) -> Flat | None:
    """A loss that ends where it began, within its noise, and moved nowhere in between.

    `start`: the level of its very first points, which a curve of medians does not show.
    """
    c = curve.only(curve.finite)
    values = c.values
    if len(values) < FEWEST_FLAT or float(values.min()) <= 0 or _warms_up(rate):
        return None
    first, end = level(values, 0, 0.1), level(values, 2 / 3, 1)
    sigma = noise(values)
    error = sigma / (len(values) * 0.1) ** 0.5
    smooth = _smooth(values, max(5, len(values) // 20))
    # Only where a fall would have been seen: a small one in much noise is no standstill. Nor did it move in between.
    moved = float(np.abs(smooth - first).max())
    if abs(first - end) + 2 * error > FELL * first or moved > 2 * FELL * first:
        return None
    if abs(start - first) > 2 * FELL * first + 3 * sigma:
        return None  # it fell within the first points
    return Flat(first, end, sigma, len(values), int(c.steps[-1]))


def _smooth(values: Floats, width: int) -> Floats:
    """Medians of `width` points each."""
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    found: Floats = np.median(windows[:: max(1, len(windows) // 2000)], axis=1)
    if len(windows) >= 4000:
        found = np.repeat(found, len(windows) // 2000)[: len(windows)]
    return found


def _lifted(rate: Curve | None, step: int, since: int) -> bool:
    """Whether the learning rate rose by its schedule shortly before."""
    if rate is None:
        return False
    values = rate.values[(rate.steps >= since) & (rate.steps <= step) & rate.finite]
    return len(values) > 1 and float(values.max()) >= RESTART * float(values[0]) > 0


def _warms_up(rate: Curve | None) -> bool:
    """Whether the learning rate was low for most of the run."""
    if rate is None or not rate.finite.any():
        return False
    values = rate.values[rate.finite]
    return float(np.median(values)) < 0.5 * float(values.max()) and int(np.argmax(values)) > len(values) // 2
