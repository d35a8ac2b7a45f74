"""Python's garbage collector stops the host."""

from __future__ import annotations

from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent
from rankscope.base.finding import Evidence, Finding

SHARE: Final = 0.05
"""Of the window: a collector that is left alone takes a hundredth."""


def collector_pauses(traces: Traces) -> list[Finding]:
    """Where the collector ran while the device had nothing to do; only traces with Python's frames show it."""
    found = [at for at, digest in enumerate(traces.digests) if _share(digest) >= SHARE]
    return [_finding(traces, positions) for positions in traces.apart(found)]


def _share(digest: TraceDigest) -> float:
    idle = digest.idle.collector if digest.idle is not None else digest.collecting_ns
    return idle / max(1, digest.window_ns)


def _finding(traces: Traces, positions: list[int]) -> Finding:
    worst = max(positions, key=lambda at: _share(traces.digests[at]))
    digest = traces.digests[worst]
    share = _share(digest)
    ranks = traces.ranks(positions)
    first, last = traces.steps(positions)
    return Finding(
        cause="gc-pause",
        severity="warning",
        confidence=0.8,
        title=f"gc-pause: garbage collection stops {traces.named(positions)} for {ms(digest.collecting_ns)} in all, "
        f"{percent(share)} of the time the device waits for it",
        ranks=ranks,
        all_ranks=traces.all_ranks(positions),
        phase=None,
        component="gc",
        location=None,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, share, share),
        evidence=(
            Evidence("of the window the device is idle while the collector runs", share, "share", ranks),
            Evidence("the collector runs for", digest.collecting_ns / 1e6, "ms", ranks),
        ),
        next=(
            "call gc.freeze() after set-up, gc.disable(), and gc.collect() every so many steps on all ranks at once",
            "find what creates so many objects with cycles in each step",
        ),
    )
