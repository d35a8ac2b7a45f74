"""The host reads values from the device so often that the device runs dry."""

from __future__ import annotations

from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Finding

SHARE: Final = 0.1
"""Of the window, from which the device is idle because the host had waited for it."""
A_STEP: Final = 2
"""Waits that let the device run dry; one for the loss at a step's end is what most programs do."""
LEAST_WAITS: Final = 6


def host_sync(traces: Traces) -> list[Finding]:
    """Where waits of the host leave the device with nothing to do, several times a step."""
    found = [at for at, digest in enumerate(traces.digests) if _share(digest) >= SHARE]
    return [_finding(traces, positions) for positions in traces.apart(found)]


def _share(digest: TraceDigest) -> float:
    if digest.idle is None:
        return 0.0
    dry = sum(row.dry for row in digest.syncs)
    if dry < max(LEAST_WAITS, A_STEP * len(digest.step_numbers)):
        return 0.0
    if digest.idle.sync < digest.idle.data:
        return 0.0
    return digest.idle.sync / max(1, digest.window_ns)


def _finding(traces: Traces, positions: list[int]) -> Finding:
    worst = max(positions, key=lambda at: _share(traces.digests[at]))
    digest = traces.digests[worst]
    share = _share(digest)
    top = digest.syncs[0]
    dry = sum(row.dry for row in digest.syncs)
    ranks = traces.ranks(positions)
    steps = len(digest.step_numbers)
    often = f"{dry / steps:.0f} times a step" if steps else f"{dry} times"
    first, last = traces.steps(positions)
    evidence = [
        Evidence("of the window the device is idle after the host had waited for it", share, "share", ranks),
        Evidence("waits that let the device run dry", dry, "count", ranks),
        *(
            Evidence(f"of these in {row.operator or row.call}{row.origin.place}", row.dry, "count", ranks)
            for row in digest.syncs[:3]
            if row.dry
        ),
    ]
    return Finding(
        cause="host-sync",
        severity="warning",
        confidence=0.8,
        title=f"host-sync: {top.operator or top.call}{top.origin.place} waits for the device {often} on "
        f"{traces.named(positions)} and leaves it idle {percent(share)} of the time",
        ranks=ranks,
        all_ranks=traces.all_ranks(positions),
        phase=None,
        component=top.operator or top.call,
        location=top.origin.line,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, share, share),
        evidence=tuple(evidence),
        next=(
            "read values from the device less often: keep sums on the device and call .item() once in many steps",
            "look for hidden reads: `if tensor`, tensor.nonzero(), boolean masks, .cpu(), print of a tensor",
            "copy with non_blocking=True from pinned memory",
        ),
    )
