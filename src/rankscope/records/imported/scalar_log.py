"""Scalars that a training program logged, by tag and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarLog(Table):
    """One TensorBoard event file: what `add_scalar` and its like wrote, in the order of writing."""

    run: str
    """The folder of the file, as TensorBoard names a run."""
    tags: tuple[str, ...]
    tag: NDArray[np.int32]
    """[point] its number in `tags`."""
    step: NDArray[np.int64]
    """[point] as the program counts them; goes back where it was started again."""
    time_ns: NDArray[np.int64]
    """[point] wall clock of writing."""
    value: NDArray[np.float64]
    num_records: int
    num_damaged: int
    """Records whose check sum is wrong, or which are no events; left out."""
    truncated_bytes: int
    """Of a last record that is not complete: the program is still running, or was killed."""
