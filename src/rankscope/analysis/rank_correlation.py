"""Whether two quantities rise together, in whatever way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's correlation, -1 to 1; 0 where one of them does not vary.

    Of places in order, not of values: work and time may be related in any rising way (attention grows with the square).
    """
    places = [_places(x) for x in (a, b)]
    if any(p.std() == 0 for p in places):
        return 0.0
    return float(np.corrcoef(places[0], places[1])[0, 1])


def _places(values: Floats) -> Floats:
    """The place of each value in order; equal values share their mean place."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], np.float64)
