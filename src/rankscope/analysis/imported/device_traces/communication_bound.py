"""Communication that nothing hides dominates on all ranks."""

from __future__ import annotations

from typing import Final

from rankscope.analysis.imported.device_traces.bandwidth import bandwidth_of
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Finding

SHARE: Final = 1 / 3
"""Of the window. Less is what most parallel jobs pay."""
ALONE: Final = 1 / 2
"""The same where waiting for other ranks cannot be told from the transfer, as only one rank is at hand."""


def communication_bound(traces: Traces) -> list[Finding]:
    """Where the transfers themselves, without the waiting for late ranks, take that much on every rank."""
    exposed = [_exposed(traces, at) for at in range(len(traces.digests))]
    if not exposed or any(share is None for share in exposed):
        return []
    known = [share for share in exposed if share is not None]
    compared = bool(traces.groups)
    if len(known) > 1 and not compared:
        return []  # not one job, or nothing that can be matched: what is waiting cannot be told
    least = min(known)
    if least < SHARE or (not compared and least < ALONE):
        return []
    positions = list(range(len(traces.digests)))
    ranks = traces.ranks(positions)
    first, last = traces.steps(positions)
    evidence = [Evidence("of the window only communication runs, without waiting for ranks", least, "share", ranks)]
    for row in bandwidth_of(traces)[:2]:
        if row.gb_per_s is not None:
            evidence.append(
                Evidence(f"{row.operation} of {row.size / 1e6:.1f} MB moves, in the median", row.gb_per_s, "GB/s")
            )
    return [
        Finding(
            cause="communication-bound",
            severity="warning",
            confidence=0.8 if compared else 0.5,
            title=f"communication-bound: {percent(least)} of the time only communication runs on "
            f"{traces.named(positions)}"
            + ("" if compared else "; whether it transfers or waits needs the traces of the other ranks"),
            ranks=ranks,
            all_ranks=traces.all_ranks(positions) or (traces.world_size or 1) > 1,
            phase="communication",
            component=None,
            location=None,
            first_step=first,
            last_step=last,
            cost=traces.cost(positions, least, least),
            evidence=tuple(evidence),
            next=(
                "overlap it with computation: buckets earlier in the backward, prefetching of shards, async calls",
                "send less: accumulate gradients, 16-bit gradients, shard within a node rather than over all",
                "compare the bandwidth with what the links give (nccl-tests); `rankscope doctor` checks the settings",
            ),
        )
    ]


def _exposed(traces: Traces, at: int) -> float | None:
    """Exposed communication's share without waiting; None where nothing communicates."""
    shares = traces.digests[at].shares
    if shares is None or shares.hidden_communication is None:
        return None
    total = wait = 0
    for group in traces.groups:
        if at in group.members:
            row = group.members.index(at)
            total += int(group.duration[row].sum())
            wait += int(group.wait[row].sum())
    return shares.exposed_communication * (1 - wait / total if total else 1)
