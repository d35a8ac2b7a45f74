"""How well kernels fill the device, as far as a trace can tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.intervals import covered
from rankscope.analysis.imported.device_traces.steps import Steps
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import COLLECTIVE, KERNEL, DeviceTrace

# Matrix instructions by name: of Volta and Turing (884, 1688), Ampere (16816), Hopper and later (gmma, nvjet).
_TENSOR_CORES: Final = re.compile(
    r"[hisc]884|[hisc]1688|[isc]?16816|i8816|[hi]mma|tensorop|gmma|nvjet|xmma_(gemm|implicit_gemm|sparse|warp)|flash_fwd|flash_bwd"
)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Over all marked steps, or the window of the device where none is marked. None: not recorded."""

    utilisation: float
    """Share of the time in which at least one kernel ran."""
    sm_efficiency: float | None
    """The same, each kernel only with the share of the multiprocessors that it has a block for."""
    occupancy: float | None
    """Estimated, 0 to 1, weighted with duration."""
    tensor_core_share: float
    """Of the time of all kernels that compute, those whose name says that they use matrix instructions."""


def efficiency_of(trace: DeviceTrace, work: Work, steps: Steps) -> Efficiency | None:
    """None where no kernel ran."""
    chosen = np.isin(work.category, (KERNEL, COLLECTIVE))
    spans, length = work.span[chosen], (work.end - work.start)[chosen].astype(float)
    if not len(spans) or not length.sum():
        return None
    total = float((steps.end - steps.start).sum()) if len(steps) else float(work.window_ns)
    busy = float(covered(work.compute, steps.start, steps.end).sum()) if len(steps) else float(work.compute.total)
    recorded = {span: row for row, span in enumerate(trace.kernel_span.tolist())}
    rows = np.array([recorded.get(span, -1) for span in spans.tolist()])
    blocks = np.where(rows >= 0, trace.kernel_blocks_per_sm[rows], np.nan).astype(float)
    occupancy = np.where(rows >= 0, trace.kernel_occupancy[rows], np.nan).astype(float)
    known, estimated = ~np.isnan(blocks), ~np.isnan(occupancy)
    fast = np.array([bool(_TENSOR_CORES.search(name)) for name in trace.names])[trace.name[spans]]
    return Efficiency(
        utilisation=busy / total,
        sm_efficiency=float((np.minimum(blocks[known], 1) * length[known]).sum()) / total if known.any() else None,
        occupancy=float((occupancy[estimated] * length[estimated]).sum() / length[estimated].sum()) / 100
        if estimated.any() and length[estimated].sum()
        else None,
        tensor_core_share=float(length[fast].sum() / length.sum()),
    )
