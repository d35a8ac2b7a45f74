"""Where the host waited for the device and so let it run dry."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.idle import Idle, waits_of
from rankscope.analysis.imported.device_traces.nesting import Nesting
from rankscope.analysis.imported.device_traces.origins import Origin, origin_of
from rankscope.records.imported.device_trace import OPERATOR, DeviceTrace

_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class SyncRow:
    """All waits of one call within one operator."""

    call: str
    operator: str
    """As `aten::item`; empty: not within one."""
    calls: int
    dry: int
    """Of these, after how many the device had nothing to do."""
    idle_ns: int
    origin: Origin
    """Of the one that cost most."""


def syncs_of(trace: DeviceTrace, idle: Idle, nesting: Nesting) -> tuple[SyncRow, ...]:
    """The costliest first; of the waits in the trace, those that no launch follows cost nothing."""
    waits = waits_of(trace)
    if not len(waits):
        return ()
    cost: dict[int, int] = defaultdict(int)
    for span, ns in zip(idle.after_wait.tolist(), (idle.host_wait + idle.launch_delay).tolist(), strict=True):
        if span >= 0:
            cost[span] += ns
    operator = nesting.nearest(trace, waits, OPERATOR)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for span, at in zip(waits.tolist(), operator.tolist(), strict=True):
        groups[trace.names[trace.name[span]], _outer(trace, nesting, at)].append(span)
    rows = []
    for (call, name), spans in groups.items():
        dry = [span for span in spans if cost.get(span)]
        worst = max(spans, key=lambda span: cost.get(span, 0))
        rows.append((sum(cost.get(span, 0) for span in spans), call, name, len(spans), len(dry), worst))
    rows.sort(reverse=True)
    return tuple(
        SyncRow(call, name, calls, dry, ns, origin_of(trace, nesting, worst))
        for ns, call, name, calls, dry, worst in rows[:_MOST]
    )


def _outer(trace: DeviceTrace, nesting: Nesting, operator: int) -> str:
    """`aten::item` rather than the `aten::_local_scalar_dense` within it: the outermost that is PyTorch's."""
    name = ""
    at = operator
    while at >= 0:
        if trace.category[at] == OPERATOR and trace.names[trace.name[at]].startswith("aten::"):
            name = trace.names[trace.name[at]]
        at = int(nesting.parent[at])
    return name or (trace.names[trace.name[operator]] if operator >= 0 else "")


def sync_count(trace: DeviceTrace) -> int:
    """How often the host waited in all."""
    return int(np.size(waits_of(trace)))
