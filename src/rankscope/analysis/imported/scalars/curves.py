"""One scalar over the steps of a run: its level, its noise, and where it jumped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAD_TO_SIGMA: Final = 1.4826
"""Of normal noise, its standard deviation in median absolute deviations."""
RESETS: Final = 3
"""Times that the step goes back, from which on the program counts it anew in each epoch rather than starting again."""
LARGEST: Final = 1e100
"""What exceeds it is infinite for all that is asked here, and sums and ratios of what does not are none."""
MOST_POINTS: Final = 512
"""Of a curve that is kept for comparisons with others."""


@dataclass(frozen=True, slots=True)
class Curve:
    """[point] in the order of writing."""

    tag: str
    steps: Ints
    values: Floats
    times_ns: Ints

    @property
    def finite(self) -> NDArray[np.bool_]:
        """[point] whether it is a number that one can go on calculating with."""
        return np.abs(self.values) < LARGEST  # a NaN is not

    def only(self, rows: NDArray[np.bool_]) -> Curve:
        """Without the other points."""
        return Curve(self.tag, self.steps[rows], self.values[rows], self.times_ns[rows])


def continued(curve: Curve) -> Curve:
    """The curve as it counts: what a start from an earlier checkpoint has made void is left out, as TensorBoard does.

    Steps that begin again with every epoch void nothing.
    """
    back = np.flatnonzero(np.diff(curve.steps) < 0)
    if not len(back) or len(back) >= RESETS:
        return curve
    # A point stays if no later one has its step or an earlier one.
    later = np.minimum.accumulate(curve.steps[::-1])[::-1]
    keep = np.append(curve.steps[:-1] < later[1:], True)
    return curve.only(keep)


def noise(values: Floats) -> float:
    """Standard deviation from one point to the next, without trend and outliers."""
    if len(values) < 3:
        return 0.0
    changes = np.diff(values)
    return MAD_TO_SIGMA * float(np.median(np.abs(changes - np.median(changes)))) / 2**0.5


def reduced(curve: Curve) -> Curve:
    """At most `MOST_POINTS` points: of each stretch the median."""
    good = curve.only(curve.finite)
    count = len(good.values)
    if count <= MOST_POINTS:
        return good
    edges = np.linspace(0, count, MOST_POINTS + 1).astype(np.int64)
    pieces = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return Curve(
        good.tag,
        np.array([good.steps[(a + b) // 2] for a, b in pieces], np.int64),
        np.array([np.median(good.values[a:b]) for a, b in pieces], np.float64),
        np.array([good.times_ns[(a + b) // 2] for a, b in pieces], np.int64),
    )


def joined(curves: list[Curve]) -> Curve:
    """Curves of one tag from several files, in order of time, as one."""
    curves = sorted((c for c in curves if len(c.steps)), key=lambda c: int(c.times_ns[0]))
    return continued(
        Curve(
            curves[0].tag,
            np.concatenate([c.steps for c in curves]),
            np.concatenate([c.values for c in curves]),
            np.concatenate([c.times_ns for c in curves]),
        )
    )


def level(values: Floats, first: float, last: float) -> float:
    """Median of the part from `first` to `last`, as shares of the length; at least three points."""
    count = len(values)
    a = int(first * count)
    b = max(int(last * count), min(count, a + 3))
    a = min(a, max(0, b - 3))
    return float(np.median(values[a:b])) if b > a else float("nan")
