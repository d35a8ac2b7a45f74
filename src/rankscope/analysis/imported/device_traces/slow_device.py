"""Every kernel of a rank is slower by about the same factor."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.tables import KernelRow
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Finding

SLOWER: Final = 1.1
"""Times the kernels of the others. Devices of one kind differ by some hundredths with temperature and make."""
ALIKE: Final = 0.8
"""Of the time, the kernels that must be slower: a slow device slows all, other inputs only some."""
LEAST_KERNELS: Final = 5
"""Names in common."""
SAME_BLOCKS: Final = 0.02
"""By which the blocks of a kernel may differ and its work still be called the same: longer inputs need more blocks."""
CLEARLY: Final = 3
"""Times by which the others differ among themselves."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one rank's kernels against those of the other ranks."""

    factor: float
    """Median over kernels, weighted with time; 1: as fast as the others."""
    alike: float
    """Share of the kernel time that is slower, by at least half as much as the factor says."""


def speeds(traces: Traces) -> list[Speed | None]:
    """By position; None where too few kernels are in common with other ranks. A kernel with other numbers of blocks
    than on most ranks does other work, and is not compared."""
    rows: dict[str, list[tuple[int, KernelRow]]] = defaultdict(list)
    for at, digest in enumerate(traces.digests):
        for row in digest.kernels:
            if not row.communicates and row.median_ns > 0:
                rows[row.name].append((at, row))
    found: list[list[tuple[float, float]]] = [[] for _ in traces.digests]
    for same in rows.values():
        blocks = np.array([np.nan if row.blocks_per_sm is None else row.blocks_per_sm for _, row in same])
        usual = float(np.nanmedian(blocks)) if not np.isnan(blocks).all() else np.nan
        alike = np.isnan(blocks) | (np.abs(blocks - usual) <= SAME_BLOCKS * usual)
        kept = [one for one, keep in zip(same, alike.tolist(), strict=True) if keep]
        medians = np.array([row.median_ns for _, row in kept])
        for number, (at, row) in enumerate(kept if len(kept) > 1 else []):
            found[at].append((row.median_ns / float(np.median(np.delete(medians, number))), row.total_ns))
    return [
        _speed(np.array([ratio for ratio, _ in one]), np.array([weight for _, weight in one], float))
        if len(one) >= LEAST_KERNELS
        else None
        for one in found
    ]


def _speed(ratios: NDArray[np.float64], weights: NDArray[np.float64]) -> Speed:
    order = np.argsort(ratios)
    total = np.cumsum(weights[order])
    factor = float(ratios[order][np.searchsorted(total, total[-1] / 2)])
    slower = ratios >= 1 + (factor - 1) / 2
    return Speed(factor, float(weights[slower].sum() / weights.sum()) if factor > 1 else 0.0)


def slow_devices(traces: Traces) -> list[Finding]:
    """Ranks, a minority, whose kernels are all slower; no trace without a rank is compared."""
    if any(digest.rank is None for digest in traces.digests) or len(traces.digests) < 2:
        return []
    all_speeds = speeds(traces)
    slow = [at for at, one in enumerate(all_speeds) if one and one.factor >= SLOWER and one.alike >= ALIKE]
    rest = [one.factor for at, one in enumerate(all_speeds) if one is not None and at not in slow]
    if not slow or len(slow) > len(traces.digests) / 2 or not rest:
        return []
    noise = max(abs(factor - 1) for factor in rest) if len(rest) > 1 else 0.0
    # Of two ranks each is the other's measure: the one is slower by as much as the other is faster.
    if len(traces.digests) > 2:
        slow = [at for at in slow if (one := all_speeds[at]) and one.factor - 1 >= CLEARLY * noise]
    return [_finding(traces, slow, all_speeds)] if slow else []


def _finding(traces: Traces, slow: list[int], all_speeds: list[Speed | None]) -> Finding:
    factors = [one.factor for at in slow if (one := all_speeds[at]) is not None]
    worst = max(factors)
    ranks = traces.ranks(slow)
    rest = [at for at in range(len(traces.digests)) if at not in slow]
    digest = traces.digests[slow[factors.index(worst)]]
    share = (digest.shares.compute if digest.shares is not None else 0.0) * (1 - 1 / worst)
    first, last = traces.steps(slow)
    name = digest.device_name or "its device"
    return Finding(
        cause="slow-device",
        severity="warning",
        confidence=0.85,
        title=f"slow-device: all kernels of {traces.named(slow)} take {worst:.2f} times as long as on the other "
        f"ranks; the job waits {percent(share)} of the time",
        ranks=ranks,
        all_ranks=False,
        phase=None,
        component=name,
        location=None,
        first_step=first,
        last_step=last,
        cost=traces.cost(slow, share, share),
        evidence=(
            *(
                Evidence("the same kernels take, times the other ranks' median", one.factor, "x", traces.ranks([at]))
                for at in slow
                if (one := all_speeds[at]) is not None
            ),
            Evidence(
                "the other ranks' kernels differ from each other by at most",
                max((abs(one.factor - 1) for at in rest if (one := all_speeds[at])), default=0.0),
                "share",
                traces.ranks(rest),
            ),
        ),
        next=(
            "read its clocks, temperature, power limit and throttle reasons (nvidia-smi -q -d PERFORMANCE,CLOCK)",
            "look for another process on it, and for ECC or Xid errors in the driver's messages",
            "leave the node out and run again",
        ),
    )
