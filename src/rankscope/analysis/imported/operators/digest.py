"""What is kept of an execution trace: its collectives and groups, and how often each operator is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.examiner import Digest
from rankscope.records.imported.execution_trace import CollectiveCall, ExecutionTrace, Group

MOST_CALLS: Final = 200_000
"""Collectives of one rank that are kept; comparing that many says it all."""
MOST_NAMES: Final = 50


@dataclass(frozen=True, slots=True)
class TraceDigest(Digest):
    """One rank's trace."""

    nodes: int
    operators: tuple[tuple[str, int], ...]
    """(name, calls) of those that are called most."""
    steps: tuple[int, ...]
    """Steps that are in the trace from beginning to end: all that are marked, but the last of a cut file."""
    collectives: tuple[CollectiveCall, ...]
    groups: tuple[Group, ...]
    tensors: int
    tensor_bytes: int
    schema: str
    complete: bool

    @property
    def world_size(self) -> int | None:
        """Size of the default group; None where no group is named so."""
        sizes = [g.size for g in self.groups if "default" in g.description and g.size > 0]
        return max(sizes, default=None)

    def lines(self) -> tuple[str, ...]:
        """What is in it, for reports that show healthy files as well."""
        most = ", ".join(f"{name} {count:,}" for name, count in self.operators[:8])
        lines = (
            f"{self.nodes:,} nodes, {len(self.steps)} steps, schema {self.schema}",
            f"called most: {most}",
            f"{self.tensors:,} tensors, {self.tensor_bytes:,} bytes behind them",
            f"{len(self.collectives):,} collectives in {len({g.name for g in self.groups})} groups",
        )
        return lines if self.collectives else lines[:-1]


def digest(trace: ExecutionTrace) -> TraceDigest:
    """The digest of a trace."""
    counts = np.bincount(trace.name, minlength=len(trace.names))
    order = np.argsort(-counts, kind="stable")
    named = [(trace.names[i], int(counts[i])) for i in order.tolist() if not trace.names[i].startswith("[")]
    steps = trace.step_number.tolist()
    return TraceDigest(
        file=trace.file,
        rank=trace.rank,
        nodes=len(trace.node),
        operators=tuple(named[:MOST_NAMES]),
        steps=tuple(steps if trace.complete else steps[:-1]),
        collectives=trace.collectives[:MOST_CALLS],
        groups=trace.groups,
        tensors=trace.tensors,
        tensor_bytes=trace.tensor_bytes,
        schema=trace.schema,
        complete=trace.complete,
    )
