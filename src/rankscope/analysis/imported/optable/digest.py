"""What is kept of an operation table: its rows, each once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.examiner import Digest
from rankscope.records.imported.operation_table import OperationTable


@dataclass(frozen=True, slots=True)
class TableDigest(Digest):
    """The operations of one file: a replay needs all of them. Columns as in `OperationTable`."""

    ranks: NDArray[np.int32]
    replicas: NDArray[np.int32]
    stages: NDArray[np.int32]
    steps: NDArray[np.int64]
    kinds: NDArray[np.int16]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    orders: NDArray[np.int32]
    chunks: NDArray[np.int32]
    micro_batches: NDArray[np.int32]
    names: tuple[str, ...]
    dropped: int
    repeated: int
    """Rows that were there twice."""

    def __len__(self) -> int:
        return len(self.steps)


def digest(table: OperationTable) -> TableDigest:
    """The rows in order of step, rank, kind and time; those that repeat another one only once."""
    order = np.lexsort((table.duration_ns, table.start_ns, table.kind, table.row_rank, table.step))
    again = np.ones(len(order), bool)
    if len(order):
        again[0] = False
    for column in (table.row_rank, table.step, table.kind, table.start_ns, table.duration_ns):
        again[1:] &= column[order][1:] == column[order][:-1]
    kept = order[~again]
    return TableDigest(
        file=table.file,
        rank=table.rank,
        ranks=table.row_rank[kept],
        replicas=table.replica[kept],
        stages=table.stage[kept],
        steps=table.step[kept],
        kinds=table.kind[kept],
        start_ns=table.start_ns[kept],
        duration_ns=table.duration_ns[kept],
        orders=table.order[kept],
        chunks=table.chunk[kept],
        micro_batches=table.micro_batch[kept],
        names=table.kinds,
        dropped=table.dropped,
        repeated=int(again.sum()),
    )
