"""How much memory each kind of tensor takes over time (`torch.profiler`'s memory timeline), as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table

CATEGORIES: Final = (
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown",
)  # fmt: skip
"""In the order in which the profiler numbers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline(Table):
    """A file of `export_memory_timeline` or `memory_timeline.raw`, of one device."""

    time_ns: NDArray[np.int64]
    """[moment] since the epoch; of what was there before profiling began the time of the first event."""
    bytes: NDArray[np.int64]
    """[moment, category] after all that happened at it; columns as `CATEGORIES`."""
