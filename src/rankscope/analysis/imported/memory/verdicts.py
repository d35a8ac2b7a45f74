"""From one snapshot's digest to what is wrong with it, the most precise reason first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rankscope.analysis.imported.memory.digest import SnapshotDigest
from rankscope.analysis.imported.memory.failure import Failure
from rankscope.analysis.imported.memory.pieces import Pieces
from rankscope.analysis.imported.memory.sizes import size
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Severity
from rankscope.records.imported.memory_snapshot import Frame

WASTED: Final = 0.4
"""Of what is reserved at the peak, free pieces in segments that are in use: healthy jobs come to a quarter at most."""
WASTED_BYTES: Final = 1 << 30
"""And so many bytes: less is not worth a change."""
RETRIES: Final = 3
"""Times that the device was found full, before they are a habit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fault that one snapshot shows."""

    cause: str
    severity: Severity
    confidence: float
    what: str
    """The title without the rank."""
    place: str
    location: Frame | None
    evidence: tuple[Evidence, ...]
    next: tuple[str, ...]
    step: int | None = None


def verdict(d: SnapshotDigest) -> Verdict | None:
    """The fault of this snapshot; None where it shows none."""
    if d.failure is not None:
        return _failed(d, d.failure)
    if d.leak is not None:
        return _leaks(d)
    layout = d.layout
    if d.retries >= RETRIES and d.retry_layout is not None:
        return _fragmented(d, d.retry_layout, f"the device was found full {d.retries} times although pieces were free")
    if (
        layout is not None
        and d.num_events
        and layout.pinned_bytes >= max(WASTED_BYTES, WASTED * layout.reserved)
        and d.peak >= d.held
    ):
        return _fragmented(d, layout, f"even at the peak {percent(layout.free / layout.reserved)} of them are free")
    if d.burst is not None:
        return _overlong(d)
    return None


def _failed(d: SnapshotDigest, f: Failure) -> Verdict:
    leak, tail = d.leak, f"{size(f.requested)} for {f.place} did not fit"
    if leak is not None and leak.bytes >= f.short:
        return _leaks(d, tail)
    first = d.steps_before_failure == 0 and f.in_optimizer
    second = d.steps_before_failure == 1 and f.short > 0 and d.state_bytes >= f.short
    # New state that is more than all free pieces together is the larger reason.
    state = first or (second and (f.layout is None or d.state_bytes > f.layout.free))
    if f.free_in_pieces and f.layout is not None and not state:
        return _fragmented(d, f.layout, tail)
    if d.burst is not None:
        return _overlong(d, tail)
    if state:
        when = "in the first optimizer step" if first else "in the step after the first optimizer step"
        return Verdict(
            cause="optimizer-state-memory",
            severity=_severity(f),
            confidence=0.8,
            what=f"the optimizer's state ({size(d.state_bytes)} so far) does not fit: {tail} {when}",
            place=f.place,
            location=f.location,
            evidence=(Evidence("optimizer state that appeared in this history", d.state_bytes, "bytes"), *_asked(d, f)),
            next=(
                "shard the optimizer's state over the ranks (ZeRO, FSDP), keep it in 8 bits, or move it to the host",
                "make room for it: the first step that fits says nothing of the second one",
            ),
        )
    if f.short:
        missing, enough = f"{size(f.short)} short", f"{size(f.short)} less would have let it fit"
    else:
        missing = f"although {size(f.device_free)} were free on the device"
        enough = "a limit below the device's memory was set (`set_per_process_memory_fraction`)"
    top = f"; {d.categories[0][0]} hold {size(d.categories[0][1])} of {size(f.held)}" if d.categories and f.held else ""
    return Verdict(
        cause="out-of-memory",
        severity=_severity(f),
        confidence=0.95,
        what=f"out of memory: {tail}, {missing}{top}",
        place=f.place,
        location=f.location,
        evidence=_asked(d, f),
        next=(
            enough,
            *(f"{h.place} holds {size(h.bytes)} in {h.count} tensors" for h in d.at_peak[:3]),
            "smaller batches or sequences, activation checkpointing, lower precision, or sharding over more ranks",
        ),
    )


def _asked(d: SnapshotDigest, f: Failure) -> tuple[Evidence, ...]:
    return (
        Evidence(f"asked for by {f.place}", f.requested, "bytes"),
        Evidence("free on the device", f.device_free, "bytes"),
        Evidence("missing", f.short, "bytes"),
        Evidence("held by tensors", f.held, "bytes"),
        Evidence("reserved by the allocator", f.reserved, "bytes"),
        *((Evidence("largest free piece of it", f.layout.largest_free, "bytes"),) if f.layout is not None else ()),
        *((Evidence("allocations that failed", f.count, "count"),) if f.count > 1 else ()),
        *(Evidence(f"held then: {name}", value, "bytes") for name, value in d.categories[:5]),
        *(Evidence(f"held then by {h.place}, {h.count} tensors", h.bytes, "bytes") for h in d.at_peak[:5]),
    )


def _severity(f: Failure) -> Severity:
    """A program that goes on after it, with smaller batches for instance, meant to try."""
    return "warning" if f.went_on else "critical"


def _leaks(d: SnapshotDigest, tail: str = "") -> Verdict:
    leak = d.leak
    assert leak is not None
    f = d.failure
    whose = "graphs of earlier steps are kept" if leak.graph else "tensors pile up"
    return Verdict(
        cause="retained-graph" if leak.graph else "growing-cache",
        severity=_severity(f) if f is not None else "warning",
        confidence=0.85,
        what=f"{whose}: {leak.place} keeps {size(leak.bytes_per_step)} more with every step, "
        f"{size(leak.bytes)} after {leak.steps}" + (f", until {tail}" if tail else ""),
        place=leak.place,
        location=leak.location,
        evidence=(
            Evidence("kept more with every step", leak.bytes_per_step, "bytes"),
            Evidence(f"kept after {leak.steps} steps (told by {d.steps_by})", leak.bytes, "bytes"),
            Evidence("allocations kept", leak.count, "count"),
            *(Evidence(f"kept: {place}, {count} tensors", b, "bytes") for place, count, b in leak.sites[:5]),
            *(_asked(d, f)[:4] if f is not None else ()),
        ),
        next=(
            "keep `loss.item()` or `x.detach().cpu()`, not tensors that hold their graph"
            if leak.graph
            else "find the list or dict that these tensors go into, and empty it or move it to the host",
            "hold on to nothing from one step to the next but parameters and the optimizer's state",
        ),
    )


def _fragmented(d: SnapshotDigest, layout: Pieces, why: str) -> Verdict:
    f = d.failure
    return Verdict(
        cause="memory-fragmentation",
        severity=_severity(f) if f is not None else "warning",
        confidence=0.9 if f is not None else 0.7,
        what=f"reserved memory is in pieces: {size(layout.free)} of {size(layout.reserved)} are free in "
        f"{layout.num_free} pieces, the largest {size(layout.largest_free)}; {why}",
        place=f.place if f is not None else (layout.pinning_sites[0][0] if layout.pinning_sites else "the allocator"),
        location=f.location if f is not None else None,
        evidence=(
            Evidence("reserved by the allocator, without small segments and private pools", layout.reserved, "bytes"),
            Evidence("free in it", layout.free, "bytes"),
            Evidence("largest free piece", layout.largest_free, "bytes"),
            Evidence("free pieces", layout.num_free, "count"),
            Evidence(f"free in {layout.pinned_segments} segments that little keeps", layout.pinned_bytes, "bytes"),
            Evidence(f"{layout.pinning_blocks} blocks that keep them", layout.pinning_bytes, "bytes"),
            *(Evidence(f"keeps segments: {place}, {n} blocks", b, "bytes") for place, n, b in layout.pinning_sites[:3]),
            *(_asked(d, f)[:3] if f is not None else ()),
        ),
        next=(
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: its segments are not bound to one size"
            + (" (it would have fitted)" if f is not None else ""),
            "allocate what stays for long before what passes"
            + (": " + ", ".join(s[0] for s in layout.pinning_sites[:2]) if layout.pinning_sites else ""),
            "pad batches to few sizes; or max_split_size_mb",
        ),
    )  # fmt: skip


def _overlong(d: SnapshotDigest, tail: str = "") -> Verdict:
    b, f = d.burst, d.failure
    assert b is not None
    return Verdict(
        cause="overlong-sample",
        severity=_severity(f) if f is not None else "warning",
        confidence=0.75,
        what=f"one step (the {b.step + 1}. of the history) needs {b.ratio:.1f} times larger tensors than all others, "
        f"{size(b.bytes)} instead of {size(b.usual_bytes)}: {b.place}" + (f"; {tail}" if tail else ""),
        place=b.place,
        location=b.location,
        evidence=(
            Evidence("its allocations over the largest of the same lines in other steps (median)", b.ratio, "x"),
            Evidence("its peak above what is held between steps", b.bytes, "bytes"),
            Evidence("that of the other steps (median)", b.usual_bytes, "bytes"),
            *(_asked(d, f)[:5] if f is not None else ()),
        ),
        next=(
            "look at the length of this batch's samples; cut, split or leave out the longest",
            "batch by tokens rather than by samples",
        ),
        step=b.step,
    )
