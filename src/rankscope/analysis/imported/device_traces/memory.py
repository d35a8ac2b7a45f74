"""The allocator's memory over the time of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.device_trace import HOST, DeviceTrace


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Of one device, in order of time. All columns are [event]."""

    time_ns: NDArray[np.int64]
    allocated: NDArray[np.int64]
    """Bytes; where the file has only changes (2021), from an unknown start."""
    reserved: NDArray[np.int64] | None
    """None: not recorded."""
    absolute: bool
    """Whether `allocated` is what was allocated, rather than how it changed since the trace began."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Of one device."""

    device: int
    events: int
    peak_bytes: int
    peak_ns: int
    reserved_bytes: int | None
    grown_bytes: int
    """Between the first and the last event."""
    absolute: bool


def memory_curve(trace: DeviceTrace, device: int) -> MemoryCurve | None:
    """What `profile_memory` recorded of a device; None where it recorded nothing."""
    rows = np.flatnonzero(trace.memory_device == device)
    if not len(rows):
        return None
    rows = rows[np.argsort(trace.memory_ns[rows], kind="stable")]
    allocated, reserved = trace.memory_allocated[rows], trace.memory_reserved[rows]
    absolute = bool((allocated >= 0).all())
    if not absolute:
        allocated = np.cumsum(trace.memory_bytes[rows])
    return MemoryCurve(trace.memory_ns[rows], allocated, reserved if (reserved >= 0).all() else None, absolute)


def memory_peaks(trace: DeviceTrace) -> tuple[MemoryPeak, ...]:
    """Of each device; the host's own memory is left out."""
    peaks = []
    for device in np.unique(trace.memory_device[trace.memory_device != HOST]).tolist():
        curve = memory_curve(trace, device)
        assert curve is not None
        at = int(np.argmax(curve.allocated))
        peaks.append(
            MemoryPeak(
                device=device,
                events=len(curve.time_ns),
                peak_bytes=int(curve.allocated[at]),
                peak_ns=int(curve.time_ns[at]),
                reserved_bytes=int(curve.reserved.max()) if curve.reserved is not None else None,
                grown_bytes=int(curve.allocated[-1] - curve.allocated[0]),
                absolute=curve.absolute,
            )
        )
    return tuple(peaks)
