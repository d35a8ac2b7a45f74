"""What each allocation holds, as far as its stack and its lifetime tell it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.memory.lifetimes import Lifetimes
from rankscope.analysis.imported.memory.sites import BACKWARD, FORWARD, OPTIMIZER, SETUP, Sites

CATEGORIES: Final = (
    "parameters and buffers",
    "gradients",
    "optimizer state",
    "activations",
    "temporaries of backward",
    "temporaries of the optimizer",
    "other",
    "unknown (allocated before the history, or without a stack)",
)
PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, OF_BACKWARD, OF_OPTIMIZER, OTHER, UNKNOWN = range(len(CATEGORIES))


def categories(lives: Lifetimes, sites: Sites) -> NDArray[np.int64]:
    """[allocation] a number of `CATEGORIES`.

    What backward allocates and outlives it is a gradient, what the optimizer allocates and outlives it is its state.
    """
    parts = sites.parts[lives.stack]
    found = np.full(len(parts), OTHER)
    found[lives.stack < 0] = UNKNOWN
    found[(parts & SETUP) > 0] = PARAMETERS
    found[(parts & FORWARD) > 0] = ACTIVATIONS
    for bit, stays, passes in ((BACKWARD, GRADIENTS, OF_BACKWARD), (OPTIMIZER, STATE, OF_OPTIMIZER)):
        mine = (parts & bit) > 0
        outlives = lives.end > _next_of_others(lives, mine)[np.arange(len(parts))]
        found[mine] = np.where(outlives[mine], stays, passes)
    return found


def by_category(lives: Lifetimes, kinds: NDArray[np.int64], alive: NDArray[np.bool_]) -> dict[str, int]:
    """Bytes of each category that has any, the largest first."""
    sums = np.bincount(kinds[alive], lives.size[alive], len(CATEGORIES)).astype(np.int64).tolist()
    return dict(sorted(((name, n) for name, n in zip(CATEGORIES, sums, strict=True) if n), key=lambda one: -one[1]))


def _next_of_others(lives: Lifetimes, mine: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[allocation] the event of the first allocation after it that is not of this part."""
    others = np.sort(lives.start[~mine & (lives.start >= 0)])
    padded = np.append(others, lives.num_events - 1)
    after: NDArray[np.int64] = padded[np.searchsorted(others, lives.start, side="right")]
    return after
