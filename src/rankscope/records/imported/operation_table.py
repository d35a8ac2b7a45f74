"""The operations of a job on all its ranks, as a framework's own profiler lists them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTable(Table):
    """One row an operation of one rank in one step: compute of a micro-batch, a send, a sync of gradients.

    Rows stand in the order of the file. Where a job runs several GPUs a model replica and stage (tensor parallelism),
    often one of them stands for all.
    """

    row_rank: NDArray[np.int32]
    """Global rank of the row."""
    replica: NDArray[np.int32]
    """Data-parallel rank; -1: not written."""
    stage: NDArray[np.int32]
    """Stage of the pipeline; -1: not written."""
    step: NDArray[np.int64]
    kind: NDArray[np.int16]
    """Number of `kinds`."""
    start_ns: NDArray[np.int64]
    """Comparable between the ranks of one step; in many files it begins anew with each step."""
    duration_ns: NDArray[np.int64]
    """Never negative. Of communication it holds the wait for the others; in some drawn timelines it does not."""
    order: NDArray[np.int32]
    """Counts the operations of one kind in one step of one rank, from 0; -1: not written."""
    chunk: NDArray[np.int32]
    """Which piece of the model on this stage, with an interleaved pipeline; -1: not written, or of no piece."""
    micro_batch: NDArray[np.int32]
    """-1: not written, or of no micro-batch."""
    kinds: tuple[str, ...]
    """Names of operations, as the file has them."""
    dropped: int
    """Rows left out: a time is missing, not finite or negative, or the rank or step is."""
