"""The operators and collectives of one rank in program order, without times (PyTorch execution trace)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table


class Group(NamedTuple):
    """A process group, as calls or its own record tell it."""

    name: str
    description: str
    first_rank: int
    stride: int
    """Members are `first_rank`, `first_rank + stride`, ...; both -1 where the file does not say it."""
    size: int
    """-1: not in the file."""


class CollectiveCall(NamedTuple):
    """One call of a collective, in program order."""

    node: int
    step: int
    """Of `torch.profiler`; -1: before the first, or none are marked."""
    group: int
    """Position in `ExecutionTrace.groups`; -1: not in the file."""
    sequence: int
    """As the backend counts its calls; -1: not in the file."""
    operation: str
    dtype: str
    in_elements: int
    out_elements: int
    """-1: not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTrace(Table):
    """One rank's trace of `torch.profiler.ExecutionTraceObserver`. [node] columns are in program order."""

    node: NDArray[np.int64]
    """[node] id; a child's is larger than its parent's."""
    parent: NDArray[np.int64]
    name: NDArray[np.int32]
    """[node] of `names`."""
    names: tuple[str, ...]
    step_node: NDArray[np.int64]
    step_number: NDArray[np.int64]
    """[step] marked steps, in order: what lies between two of their ids belongs to the first."""
    collectives: tuple[CollectiveCall, ...]
    groups: tuple[Group, ...]
    tensors: int
    """Different tensors among inputs and outputs."""
    tensor_bytes: int
    """Of the storages behind them, each once."""
    schema: str
    process_id: int
    """-1: not in the file."""
    dropped: int
    """Nodes without an id or a name."""
    complete: bool
    """False: the file is cut off."""
