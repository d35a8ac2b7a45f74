"""Two device traces side by side, for every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from rankscope.analysis.imported.device_traces.comparison import compare_traces
from rankscope.records.imported.device_trace import DeviceTrace
from rankscope.report.document import encode

SCHEMA = "rankscope.trace-compare/1"


@dataclass(frozen=True, slots=True)
class TraceSide:
    """One of the two traces."""

    file: str
    steps: int
    step_ms: float | None
    compute_share: float | None
    exposed_communication_share: float | None
    exposed_memory_share: float | None
    idle_share: float | None


@dataclass(frozen=True, slots=True)
class ChangedOperation:
    """One operator of the host or kernel of the device, in both traces."""

    name: str
    on_device: bool
    change: Literal["added", "removed", "more", "fewer", "equal"]
    """In the number of calls."""
    calls: tuple[float, float]
    ms: tuple[float, float]
    more_ms: float


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """`b` against `a`."""

    a: TraceSide
    b: TraceSide
    per_step: bool
    """Whether calls and times are those of one step; else of the whole trace."""
    operations: tuple[ChangedOperation, ...]
    """The largest difference in time first."""


def compare_device_traces(a: DeviceTrace, b: DeviceTrace) -> TraceComparison:
    """The comparison of two traces."""
    found = compare_traces(a, b)
    sides = []
    for trace, steps, step_ns, shares in zip((a, b), found.steps, found.step_ns, found.shares, strict=True):
        sides.append(
            TraceSide(
                trace.file,
                steps,
                step_ns / 1e6 if step_ns is not None else None,
                shares.compute if shares is not None else None,
                shares.exposed_communication if shares is not None else None,
                shares.exposed_memory if shares is not None else None,
                shares.idle if shares is not None else None,
            )
        )
    operations = tuple(
        ChangedOperation(
            row.name, row.on_device, row.change, row.calls, (row.ns[0] / 1e6, row.ns[1] / 1e6), row.more_ns / 1e6
        )
        for row in found.rows
    )
    return TraceComparison(sides[0], sides[1], found.per_step, operations)


def trace_comparison_to_json(comparison: TraceComparison) -> str:
    """As indented JSON."""
    return encode(SCHEMA, msgspec.to_builtins(comparison), indent=2) + "\n"
