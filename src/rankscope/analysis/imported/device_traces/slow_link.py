"""The network path of one rank is slow."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.bandwidth import BandwidthRow, bandwidth_of
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms
from rankscope.base.finding import Evidence, Finding

SLOWER: Final = 1.5
"""Times the transfer of like groups: groups that cross nodes once more or less differ by less."""
LEAST_CALLS: Final = 5
LEAST_GROUPS: Final = 3
"""Groups of one operation, size and number of ranks: of two, neither is the rule."""
LEAST_SIZE: Final = 1 << 20
"""Bytes: what is smaller measures latency, not the link."""


def slow_link(traces: Traces) -> list[Finding]:
    """Where one group's transfers, of all groups that do the same, take longer; the rank is the one that no fast group
    has. Needs the traces of all ranks of several groups, as a transfer is the shortest duration over the ranks."""
    like: dict[tuple[str, int, int], list[BandwidthRow]] = defaultdict(list)
    for row in bandwidth_of(traces):
        if row.size >= LEAST_SIZE and row.calls >= LEAST_CALLS and len(row.members) == row.num_ranks:
            like[row.operation, row.size, row.num_ranks].append(row)
    slow: list[BandwidthRow] = []
    fast: list[BandwidthRow] = []
    for rows in like.values():
        if len(rows) < LEAST_GROUPS:
            continue
        usual = float(np.median([row.transfer_ns for row in rows]))
        slow += [row for row in rows if row.transfer_ns >= SLOWER * usual]
        fast += [row for row in rows if row.transfer_ns < SLOWER * usual]
    if not slow:
        return []
    suspects = set.intersection(*(set(row.members) for row in slow)) - {at for row in fast for at in row.members}
    positions = sorted(suspects or set.intersection(*(set(row.members) for row in slow)))
    if not positions or len(positions) > len(traces.digests) // 2:
        return []
    worst = max(slow, key=lambda row: row.transfer_ns)
    usual = float(np.median([row.transfer_ns for row in like[worst.operation, worst.size, worst.num_ranks]]))
    lost = (worst.transfer_ns - usual) * worst.calls
    window = max(1, min(traces.digests[at].window_ns for at in positions))
    ranks = traces.ranks(positions)
    first, last = traces.steps(positions)
    return [
        Finding(
            cause="slow-link",
            severity="warning",
            confidence=0.7 if suspects else 0.5,
            title=f"slow-link: {worst.operation} of {worst.size / 1e6:.1f} MB takes {ms(worst.transfer_ns)} with "
            f"{traces.named(positions)}, {ms(usual)} in like groups",
            ranks=ranks,
            all_ranks=False,
            phase="communication",
            component=None,
            location=None,
            first_step=first,
            last_step=last,
            cost=traces.cost(positions, min(1.0, lost / window), min(1.0, lost / window)),
            evidence=(
                Evidence("transfer of its group, in the median", worst.transfer_ns / 1e6, "ms", ranks),
                Evidence("transfer of like groups, in the median", usual / 1e6, "ms"),
                Evidence("calls", worst.calls, "count", ranks),
            ),
            next=(
                "test the rank's links alone (nccl-tests between it and each neighbour, ib_write_bw, ethtool -S)",
                "look for retransmissions, a link that came up at a lower rate, or another interface chosen",
            ),
        )
    ]
