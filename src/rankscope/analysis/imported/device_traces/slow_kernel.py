"""One kernel dominates the device's time."""

from __future__ import annotations

import re
from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.tables import KernelRow
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent
from rankscope.base.finding import Evidence, Finding

SHARE: Final = 1 / 3
"""Of the time of all kernels. Below it making the kernel twice as fast gains less than a sixth."""
AHEAD: Final = 1.25
"""Times the next kernel's: two that share the time are how the model is."""
BUSY: Final = 0.8
"""Of the window: a device that waits has other troubles."""
LEAST_KERNELS: Final = 20
LEAST_NAMES: Final = 5
"""A benchmark of one kernel is meant to run that one."""

# What devices are built for: a model whose time goes into these is as it should be.
_MATRIX: Final = re.compile(
    r"gemm|gemv|cutlass|cublas|nvjet|xmma|wgmma|tensorop|conv|winograd|wgrad|dgrad|fprop|flash|fmha|attention|attn|Cijk_"
    r"|ck::|mha_|matmul|_mm_|_bmm|cudnn_generated_fort_native_sdpa|scaled_dot",
    re.IGNORECASE,
)


def slow_kernel(traces: Traces) -> list[Finding]:
    """Where a kernel other than a matrix product, a convolution or fused attention has the most time by far."""
    found = [at for at, digest in enumerate(traces.digests) if _dominating(digest) is not None]
    groups: dict[str, list[int]] = {}
    for at in found:
        row = _dominating(traces.digests[at])
        assert row is not None
        groups.setdefault(row.name, []).append(at)
    return [
        _finding(traces, positions) for same in groups.values() for positions in traces.apart(same)
    ]


def _dominating(digest: TraceDigest) -> KernelRow | None:
    rows = [row for row in digest.kernels if not row.communicates]
    if digest.shares is None or digest.kernel_calls < LEAST_KERNELS or len(rows) < LEAST_NAMES:
        return None
    first, second = rows[0], rows[1]
    if digest.shares.compute < BUSY or first.total_ns < SHARE * digest.kernel_ns:
        return None
    return first if first.total_ns >= AHEAD * second.total_ns and not _MATRIX.search(first.name) else None


def _finding(traces: Traces, positions: list[int]) -> Finding:
    digest = traces.digests[positions[0]]
    row = _dominating(digest)
    assert row is not None
    share = row.total_ns / digest.kernel_ns
    of_window = min(1.0, row.total_ns / max(1, digest.window_ns))
    origin = digest.kernel_origin
    place = origin.place if origin is not None else ""
    ranks = traces.ranks(positions)
    first, last = traces.steps(positions)
    evidence = [
        Evidence(f"of the time of all kernels is {row.name}", share, "share", ranks),
        Evidence("in calls", row.calls, "count", ranks),
        Evidence("each takes in the median", row.median_ns / 1e6, "ms", ranks),
    ]
    if origin is not None and origin.operator:
        evidence.append(Evidence(f"its longest call was launched by {origin.operator}{place}", row.max_ns / 1e6, "ms"))
    operator = origin.operator if origin is not None else ""
    return Finding(
        cause="slow-kernel",
        severity="warning",
        confidence=0.8,
        title=f"slow-kernel: {operator or short(row.name)}{place} takes {percent(share)} of the device's kernel time "
        f"on {traces.named(positions)}, {ms(row.median_ns)} a call",
        ranks=ranks,
        all_ranks=traces.all_ranks(positions),
        phase=None,
        component=short(row.name),
        location=origin.line if origin is not None else None,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, of_window),
        evidence=tuple(evidence),
        next=(
            "use a fused implementation (scaled_dot_product_attention, torch.compile, a fused optimizer) in its place",
            "look at its shapes and data types: odd sizes, float32 inputs and strided tensors choose slow variants",
        ),
    )


def short(name: str) -> str:
    """A kernel's name without return type, namespaces and arguments."""
    text = re.sub(r"^void\s+", "", name).replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", text, maxsplit=1)[0]
    return head.rsplit("::", 1)[-1].strip() or name[:60]
