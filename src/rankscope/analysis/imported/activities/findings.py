"""Findings about GPUs: what keeps them from computing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.activities.digest import ActivityDigest, CopyRow, Gpu
from rankscope.analysis.wording import ms, numbered, percent
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.imported import device_activity as table

IDLE: Final = 0.2
"""Share of the window. Up to a fifth is what eager programs leave idle between steps without being held up by it."""
COPYING: Final = 0.2
"""The same of copies beside which nothing computes."""
COMMUNICATING: Final = 0.5
"""Share of exposed transfers, without waiting, that makes the network the first thing to look at."""
SYNCS: Final = 6
"""Waits that let the device run dry; fewer are those at the ends of what was recorded."""
STARVED: Final = 0.5
"""Of the launches that found the device idle: where the host is ahead it is few, where it holds up nearly all."""
FEWEST: Final = 30
"""Activities; fewer are no load."""
MOST_OF: Final = 0.5
OFFLOAD: Final = "look at what is offloaded to host memory (weights, optimizer state): each pass copies it anew"


@dataclass(frozen=True, slots=True)
class Place:
    """One GPU, and how to speak of it."""

    file: str
    rank: int | None
    """None where it is not known which rank used it."""
    gpu: Gpu


def places(digests: Sequence[ActivityDigest]) -> list[Place]:
    """All GPUs. In a single file their numbers stand for ranks: one process for each is the rule; with several files it
    is not known which numbers they would be."""
    alone = len(digests) == 1
    return [
        Place(d.file, d.rank if d.rank is not None else (gpu.number if alone else None), gpu)
        for d in digests
        for gpu in d.gpus
    ]


def findings(known: list[Place]) -> list[Finding]:
    """Each cause once, with all GPUs that it holds up."""
    judged = [p for p in known if enough(p)]
    found = [_copying(known, p) for p in [[q for q in judged if _share(q.gpu.exposed_memory_ns, q) >= COPYING]] if p]
    by_reason: dict[str, list[Place]] = {}
    for p in judged:
        if _share(p.gpu.idle_ns, p) >= IDLE:
            by_reason.setdefault(_reason(p.gpu), []).append(p)
    makers = {"slow-data-loading": _loading, "host-sync": _syncs, "launch-bound": _launching}
    found += [makers[reason](known, held) for reason, held in by_reason.items()]
    bound = _communicating(known, judged)
    return found + ([bound] if bound is not None else [])


def enough(p: Place) -> bool:
    """Whether there is a load to judge: many activities, or few that fill the window."""
    gpu = p.gpu
    return gpu.window_ns > 0 and (gpu.activities >= FEWEST or gpu.idle_ns < IDLE * gpu.window_ns)


def _share(ns: float, p: Place) -> float:
    return min(1.0, ns / p.gpu.window_ns)


def _reason(gpu: Gpu) -> str:
    """What most of the idle time goes to."""
    w = gpu.waiting
    if w is None:
        return "launch-bound"
    if w.data_ns >= MOST_OF * gpu.idle_ns:
        return "slow-data-loading"
    if w.syncs >= SYNCS and w.after_sync_ns + w.launch_ns * (w.syncs / max(1, w.starved)) >= MOST_OF * gpu.idle_ns:
        return "host-sync"
    return "launch-bound"


def _finding(
    known: list[Place], held: list[Place], cause: str, *, what: str, share: float, evidence: list[Evidence],
    next: tuple[str, ...], confidence: float, phase: str | None = None, component: str | None = None,
) -> Finding:  # fmt: skip
    ranks = tuple(sorted({p.rank for p in held if p.rank is not None}))
    computing = min(held, key=lambda p: _share(p.gpu.compute_ns, p))
    kernels = sum(p.gpu.kernel_ns for p in held)
    window = max(p.gpu.window_ns for p in held)
    many = "1 GPU" if len(held) == 1 else f"{len(held)} GPUs"
    return Finding(
        cause=cause,
        severity="warning",
        confidence=confidence,
        title=f"{_named(held)} {'starves' if len(held) == 1 else 'starve'}: {what}; kernels run "
        f"{percent(_share(computing.gpu.kernel_ns, computing))}",
        ranks=ranks,
        all_ranks=len(held) == len(known) > 1,
        phase=phase,
        component=component,
        location=None,
        first_step=None,
        last_step=None,
        cost=Cost(None, share, None),
        evidence=(Evidence(f"kernels in a window of {ms(window)} over {many}", kernels / 1e6, "ms", ranks), *evidence),
        next=next,
    )


def _named(held: list[Place]) -> str:
    if len({p.file for p in held}) == 1:
        numbers = [p.gpu.number for p in held]
        return numbered(numbers).replace("ranks", "GPUs").replace("rank", "GPU")
    ranks = [p.rank for p in held if p.rank is not None]
    if len(ranks) == len(held):
        return f"the GPU of {numbered(sorted(ranks))}" if len(ranks) == 1 else f"GPUs of {numbered(sorted(ranks))}"
    return f"GPU {held[0].gpu.number} of {held[0].file.rsplit('/', 1)[-1]} and {len(held) - 1} more"


def _copying(known: list[Place], held: list[Place]) -> Finding:
    worst = max(held, key=lambda p: _share(p.gpu.exposed_memory_ns, p))
    share = _share(worst.gpu.exposed_memory_ns, worst)
    row = worst.gpu.copies[0] if worst.gpu.copies else None
    evidence = [Evidence("of the window only memory is copied or set", share, "share", _rank(worst))]
    advice = ["keep on the device what is copied again and again, or copy it ahead on a stream of its own"]
    what = f"memory operations take {percent(share)} of the time"
    if row is not None:
        part = percent(_share(row.exposed_ns, worst))
        what = f"copies ({row.what}) take {part} of the time" + (f" in {row.range}" if row.range else "")
        evidence += _of_copies(worst, row)
        if row.direction in (table.TO_DEVICE, table.TO_HOST):
            advice.insert(0, OFFLOAD)
        if row.pageable_bytes > MOST_OF * row.bytes:
            advice.insert(0, "pin the host's memory (pin_memory=True) and copy with non_blocking=True")
    return _finding(
        known, held, "slow-code", what=what, share=share, evidence=evidence, next=tuple(advice), confidence=0.75,
        phase="transfer", component=row.range or f"copies {row.what}" if row is not None else None,
    )  # fmt: skip


def _of_copies(p: Place, row: CopyRow) -> list[Evidence]:
    found = [
        Evidence(f"copied {row.what}, in {row.copies:,} copies", row.bytes, "bytes", _rank(p)),
        Evidence("at", row.bytes / max(1, row.ns), "GB/s", _rank(p)),
    ]
    pageable = row.pageable_bytes / max(1, row.bytes)
    if pageable >= 0.01:
        found.append(Evidence("of it from or to pageable memory", pageable, "share", _rank(p)))
    return found


def _rank(p: Place) -> tuple[int, ...]:
    return () if p.rank is None else (p.rank,)


def _idle(p: Place) -> list[Evidence]:
    found = [Evidence("of the window nothing runs", _share(p.gpu.idle_ns, p), "share", _rank(p))]
    w = p.gpu.waiting
    if w is not None:
        found += [
            Evidence(text, value / 1e6, "ms", _rank(p))
            for text, value in (
                ("idle while the host does something else", w.host_ns),
                ("idle after the host had waited for the device", w.after_sync_ns),
                ("idle between a launch and its start", w.launch_ns),
                ("idle though more had been launched", w.device_ns),
            )
            if value >= 0.05 * p.gpu.idle_ns
        ]
    return found


def _worst(held: list[Place]) -> Place:
    return max(held, key=lambda p: _share(p.gpu.idle_ns, p))


def _launching(known: list[Place], held: list[Place]) -> Finding:
    worst = _worst(held)
    share, w = _share(worst.gpu.idle_ns, worst), worst.gpu.waiting
    evidence = _idle(worst)
    if w is None:
        what = f"idle {percent(share)} of the time; what the host did meanwhile is not in the file"
        return _finding(
            known, held, "launch-bound", what=what, share=share, evidence=evidence, confidence=0.4,
            next=("record the host as well: `nsys profile -t cuda,nvtx,osrt`",),
        )  # fmt: skip
    many = w.launches and w.starved >= STARVED * w.launches
    starved = w.starved / max(1, w.launches)
    evidence.append(Evidence("of the launches find the device idle", starved, "share", _rank(worst)))
    evidence.append(Evidence("median gap before these", w.starved_gap_ns / 1e3, "us", _rank(worst)))
    if many:
        what = f"idle {percent(share)} of the time, {ms(w.starved_gap_ns)} before each launch"
        steps = ("launch less often: CUDA graphs, torch.compile(mode='reduce-overhead'), fused kernels, larger batches",
                 "take Python out of the way: fewer small operators, no work on the host between kernels")  # fmt: skip
        return _finding(
            known, held, "launch-bound", what=what, share=share, evidence=evidence, next=steps, confidence=0.8,
        )  # fmt: skip
    where = f" in {w.range}" if w.range else ""
    what = f"idle {percent(share)} of the time, in {w.starved:,} gaps while the host does something else{where}"
    steps = (f"look at what the host does{where} between launches: loading data, Python code, waiting for a lock",
             "mark the parts of a step with NVTX ranges and record again, to see which of them it is")  # fmt: skip
    return _finding(
        known, held, "launch-bound", what=what, share=share, evidence=evidence, next=steps, confidence=0.55,
        component=w.range or None,
    )  # fmt: skip


def _syncs(known: list[Place], held: list[Place]) -> Finding:
    worst = _worst(held)
    w = worst.gpu.waiting
    assert w is not None
    share = _share(worst.gpu.idle_ns, worst)
    what = f"{w.sync_name or 'a wait of the host'} lets it run dry {w.syncs:,} times, idle {percent(share)} of the time"
    return _finding(
        known, held, "host-sync", what=what, share=share, confidence=0.75, component=w.sync_name or None,
        evidence=[*_idle(worst), Evidence("waits that let the device run dry", w.syncs, "count", _rank(worst))],
        next=(
            "read values less often: `.item()`, `.cpu()`, `print(tensor)` and tests on tensors wait for the device",
            "copy with non_blocking=True from pinned memory, and read several values at once",
        ),
    )  # fmt: skip


def _loading(known: list[Place], held: list[Place]) -> Finding:
    worst = _worst(held)
    w = worst.gpu.waiting
    assert w is not None
    share = _share(w.data_ns, worst)
    what = f"idle {percent(share)} of the time while the host loads data" + (f" ({w.range})" if w.range else "")
    loading = Evidence("idle in ranges named after loading data", w.data_ns / 1e6, "ms", _rank(worst))
    return _finding(
        known, held, "slow-data-loading", what=what, share=share, confidence=0.8, phase="data",
        component=w.range or None, evidence=[*_idle(worst), loading],
        next=("use more loader workers, or prefetch further ahead", "move decoding off the training thread"),
    )  # fmt: skip


def _communicating(known: list[Place], judged: list[Place]) -> Finding | None:
    """Only where all GPUs of a file are at hand can the transfer be told from waiting for a late one."""
    if len(judged) < 2 or len(judged) < len(known) or len({p.file for p in judged}) != 1:
        return None
    lengths = {len(p.gpu.collectives) for p in judged}
    if len(lengths) != 1 or 0 in lengths or len({p.gpu.collective_names for p in judged}) != 1:
        return None
    transfer = np.min([p.gpu.collectives for p in judged], axis=0).sum()
    # Of what is exposed, as much is transfer as of all communication.
    parts = [float(transfer) / max(1, int(p.gpu.collectives.sum())) for p in judged]
    shares = [_share(p.gpu.exposed_communication_ns * part, p) for p, part in zip(judged, parts, strict=True)]
    if min(shares) < COMMUNICATING:
        return None
    return _finding(
        known, judged, "communication-bound", what=f"{percent(min(shares))} of the time only communication runs",
        share=min(shares), confidence=0.7, phase="communication",
        evidence=[Evidence("of the window only communication runs, without waiting", min(shares), "share")],
        next=("overlap communication with compute", "send less: accumulate gradients, 16-bit gradients"),
    )  # fmt: skip
