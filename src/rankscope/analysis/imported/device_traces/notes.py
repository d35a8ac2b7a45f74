"""What traces hold, in lines: tables that are worth a look though nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rankscope.analysis.imported.device_traces.bandwidth import bandwidth_of
from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.slow_kernel import short
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent

MOST_TRACES: Final = 4
"""That are described one by one: ranks of one job are much alike."""
ROWS: Final = 3


def notes_of(traces: Traces) -> Iterator[str]:
    """A few lines for each of the first traces, then the collectives of all."""
    for at, digest in enumerate(traces.digests[:MOST_TRACES]):
        for line in _of_one(digest):
            yield f"{traces.named([at])}: {line}"
    for row in bandwidth_of(traces)[:ROWS]:
        size = f" of {row.size / 1e6:.1f} MB" if row.size >= 0 else ""
        rate = f", {row.bus_gb_per_s or row.gb_per_s:.0f} GB/s" if row.gb_per_s else ""
        yield (
            f"{row.operation or 'collective'}{size} over {row.num_ranks} ranks: {row.calls} calls, transfer "
            f"{ms(row.transfer_ns)}{rate}, waiting for the last rank {ms(row.skew_ns)} (medians)"
        )


def _of_one(digest: TraceDigest) -> Iterator[str]:
    window = max(1, digest.window_ns)
    if digest.idle is not None and digest.queue is not None:
        parts = [
            ("launches", digest.idle.launching + digest.idle.launch_delay),
            ("values read by the host", digest.idle.sync),
            ("data", digest.idle.data),
            ("garbage collection", digest.idle.collector),
            ("gaps between queued kernels", digest.idle.kernel_gap),
            ("what was launched before the trace", digest.idle.unknown),
        ]
        said = ", ".join(f"{name} {percent(ns / window)}" for name, ns in parts if ns >= 0.001 * window)
        queued = f"{digest.queue.mean_length:.0f} pieces of work are queued or running on average"
        yield f"the device waits for {said or 'nothing'}; {queued}"
    kernels = [row for row in digest.kernels if not row.communicates][:ROWS]
    if kernels:
        said = ", ".join(f"{short(row.name)} {percent(row.total_ns / max(1, digest.kernel_ns))}" for row in kernels)
        yield f"most of {digest.kernel_calls:,} kernels' time: {said}"
    operators = digest.operators[:ROWS]
    if operators:
        yield "most of the host's time: " + ", ".join(f"{row.name} {ms(row.host_self_ns)}" for row in operators)
    if digest.path is not None:
        path = digest.path
        parts = [
            ("host", path.host), ("compute", path.compute), ("communication", path.communication),
            ("copies", path.copy), ("launch delay", path.launch_delay), ("kernel gaps", path.kernel_gap),
        ]  # fmt: skip
        total = max(1, sum(ns for _, ns in parts))
        said = ", ".join(f"{name} {percent(ns / total)}" for name, ns in parts if ns >= 0.001 * total)
        step = f" of step {path.step}" if path.step is not None else ""
        yield f"critical path{step}: {said}"
    for peak in digest.memory:
        reserved = f" of {peak.reserved_bytes / 1e6:,.0f} MB reserved" if peak.reserved_bytes is not None else ""
        more = "" if peak.absolute else " above what was held when the trace began"
        yield f"memory of device {peak.device}: at most {peak.peak_bytes / 1e6:,.0f} MB{reserved}{more}"
