"""The device waits for the host to launch kernels."""

from __future__ import annotations

from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent
from rankscope.base.finding import Evidence, Finding

STARVED: Final = 0.5
"""Of the launches that found the device idle: where the host is ahead it is few, where it is the bottleneck nearly
all."""
SHARE: Final = 0.2
"""Of the window that these gaps take. A fifth is what a faster launch (a graph, a compiler) must be able to give
back."""
LEAST_LAUNCHES: Final = 30
"""Fewer make no loop."""


def launch_bound(traces: Traces) -> list[Finding]:
    """Where most launches find the device idle, and the gaps before them add up."""
    found = [at for at, digest in enumerate(traces.digests) if starving(digest) >= SHARE]
    return [_finding(traces, positions) for positions in traces.apart(found)]


def starving(digest: TraceDigest) -> float:
    """Share of the window that the device waits for ordinary launches; 0 where it is something else that it waits for.

    Counted with the median gap, so that one long pause makes no bottleneck of launching.
    """
    queue, idle = digest.queue, digest.idle
    if queue is None or idle is None or queue.launches < LEAST_LAUNCHES or queue.starved_share < STARVED:
        return 0.0
    mean_kernel = digest.kernel_ns / digest.kernel_calls if digest.kernel_calls else 0.0
    waited = idle.launching + idle.launch_delay
    if mean_kernel > queue.starved_gap_ns or waited < idle.data + idle.sync + idle.collector:
        return 0.0
    return min(queue.launches * queue.starved_share * queue.starved_gap_ns, waited) / max(1, digest.window_ns)


def _finding(traces: Traces, positions: list[int]) -> Finding:
    worst = max(positions, key=lambda at: starving(traces.digests[at]))
    digest = traces.digests[worst]
    queue, idle = digest.queue, digest.idle
    assert queue is not None and idle is not None and digest.shares is not None
    share = (idle.launching + idle.launch_delay) / max(1, digest.window_ns)
    ranks = traces.ranks(positions)
    mean_kernel = digest.kernel_ns / max(1, digest.kernel_calls)
    first, last = traces.steps(positions)
    evidence = [
        Evidence("of the window the device waits for a launch", share, "share", ranks),
        Evidence("of the launches find the device idle", queue.starved_share, "share", ranks),
        Evidence("a kernel takes on average", mean_kernel / 1e3, "us", ranks),
        Evidence("and the device waits for the next one, in the median", queue.starved_gap_ns / 1e3, "us", ranks),
        Evidence("the device computes for", digest.shares.compute, "share", ranks),
    ]
    steps = [
        "launch less often: torch.compile(mode='reduce-overhead') or CUDA graphs, fused kernels, a larger batch",
        "take Python out of the way: fewer small operators, no work on the host between kernels",
    ]
    if digest.with_stacks:
        evidence.append(
            Evidence("Python frames were recorded, which slows the host: without, the gaps are shorter", 1, "count")
        )
        steps.append("profile once with with_stack=False to see how much of it the profiler itself costs")
    return Finding(
        cause="launch-bound",
        severity="warning",
        confidence=0.75 if digest.with_stacks else 0.85,
        title=f"launch-bound: the device of {traces.named(positions)} waits for the host's launches {percent(share)} "
        f"of the time; kernels take {ms(mean_kernel)}, the gaps before them {ms(queue.starved_gap_ns)}",
        ranks=ranks,
        all_ranks=traces.all_ranks(positions),
        phase=None,
        component=None,
        location=None,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, share, min(1.0, share)),
        evidence=tuple(evidence),
        next=tuple(steps),
    )
