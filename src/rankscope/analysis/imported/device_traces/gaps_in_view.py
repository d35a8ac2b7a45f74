"""What these traces do not show."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import numbered


def not_examined(traces: Traces) -> Iterator[tuple[str, str, str]]:
    """(check, what it needs, why it could not be made)."""
    digests = traces.digests
    hostly = [at for at, digest in enumerate(digests) if digest.shares is None]
    if hostly:
        yield (
            "device time (launch-bound, slow-kernel, communication-bound, host-sync)",
            "device activity in the trace (ProfilerActivity.CUDA)",
            f"only the host was recorded on {traces.named(hostly)}",
        )
    if not any(digest.step_numbers for digest in digests):
        yield ("cost per step", "marked steps (prof.step())", "no step is marked; shares are of the window")
    if not any(digest.loader for digest in digests):
        yield (
            "slow-data-loading",
            "a torch DataLoader inside of the profiled steps",
            "no call of a DataLoader was recorded",
        )
    if not any(digest.collecting_ns or digest.with_stacks for digest in digests):
        yield ("gc-pause", "Python frames (with_stack=True)", "Python's frames were not recorded")
    yield from _other_ranks(traces)
    left_out = sum(digest.collectives.left_out for digest in digests)
    if left_out:
        yield ("late ranks", "fewer collectives", f"only the first of each rank were compared, {left_out:,} were not")
    damaged = [at for at, digest in enumerate(digests) if not digest.complete]
    if damaged:
        yield ("whole windows", "undamaged files", f"the trace of {traces.named(damaged)} is cut short or damaged")
    dropped = sum(digest.dropped for digest in digests)
    if dropped:
        yield ("all events", "events with a time", f"{dropped:,} events without a usable time stamp were left out")


def _other_ranks(traces: Traces) -> Iterator[tuple[str, str, str]]:
    digests, needs = traces.digests, "traces of several ranks of one job, from the same steps"
    communicates = any(len(digest.collectives) for digest in digests)
    known = [digest.rank for digest in digests if digest.rank is not None]
    if communicates and not traces.groups:
        alone = len(digests) == 1
        why = "only one rank's trace is at hand" if alone else "no collective could be matched between ranks"
        yield ("late ranks, slow-link, clock", needs, why)
    if traces.world_size and traces.world_size > len(known) and len(known) > 1:
        missing = sorted(set(range(min(traces.world_size, 100_000))) - set(known))
        yield ("late ranks", needs, f"{numbered(missing)} of {traces.world_size} left no trace")
