"""The step waits for batches."""

from __future__ import annotations

from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent
from rankscope.base.finding import Evidence, Finding, Severity

WORTH_A_LINE: Final = 0.05
"""Of the step; from here on PyTorch's own plug-in for TensorBoard recommends more workers."""
WARNS: Final = 0.1


def data_loading(traces: Traces) -> list[Finding]:
    """Where the loader was asked while the device had nothing to do."""
    found = [at for at, digest in enumerate(traces.digests) if loading_share(digest) >= WORTH_A_LINE]
    return [_finding(traces, positions) for positions in traces.apart(found)]


def loading_share(digest: TraceDigest) -> float:
    """Of the step that nothing but the loader ran; of the window where no steps are marked."""
    step, waiting = digest.mean_step_ns, digest.budget("data")
    if step and waiting is not None:
        return waiting / step
    if digest.idle is not None:
        return digest.idle.data / max(1, digest.window_ns)
    return digest.loading_ns / max(1, digest.window_ns)


def _finding(traces: Traces, positions: list[int]) -> Finding:
    worst = max(positions, key=lambda at: loading_share(traces.digests[at]))
    digest = traces.digests[worst]
    share = loading_share(digest)
    ranks = traces.ranks(positions)
    each = digest.loading_ns / max(1, digest.loader_calls)
    step = digest.mean_step_ns
    origin = digest.loading_origin
    severity: Severity = "warning" if share >= WARNS else "info"
    workerless = "SingleProcess" in digest.loader
    first, last = traces.steps(positions)
    waits = f"{ms(share * step)} of each step ({percent(share)})" if step else f"{percent(share)} of the time"
    evidence = [
        Evidence("of the step nothing but the loader runs", share, "share", ranks),
        Evidence("a batch takes on average", each / 1e6, "ms", ranks),
    ]
    if workerless:
        evidence.append(Evidence("worker processes of the loader (num_workers)", 0, "count", ranks))
    if origin is not None and origin.operator:
        evidence.append(Evidence(f"within it {origin.operator}{origin.place} takes longest", each / 1e6, "ms", ranks))
    return Finding(
        cause="slow-data-loading",
        severity=severity,
        confidence=0.9 if severity == "warning" else 0.6,
        title=f"slow-data-loading: {traces.named(positions)} {'wait' if len(positions) > 1 else 'waits'} for batches "
        f"{waits}" + (", loaded in the training process itself" if workerless else ""),
        ranks=ranks,
        all_ranks=traces.all_ranks(positions),
        phase="data",
        component=digest.loader or None,
        location=origin.line if origin is not None else None,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, share, share, step),
        evidence=tuple(evidence),
        next=(
            "set num_workers above 0, with persistent_workers=True and pin_memory=True"
            if workerless
            else "give the loader more workers or a larger prefetch_factor, if cores are free",
            "make the dataset's __getitem__ and the collate function cheaper, or prepare the data ahead of the run",
        ),
    )
