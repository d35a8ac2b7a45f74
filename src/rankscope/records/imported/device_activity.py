"""What ran on the devices of one machine, and what the host asked of them (Nsight Systems), as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table

KERNEL, COLLECTIVE, GRAPH, COPY, SET = range(5)
"""A kernel; one of NCCL; a CUDA graph that was recorded as a whole; memory copied; memory set."""

UNKNOWN, TO_DEVICE, TO_HOST, ON_DEVICE, BETWEEN_DEVICES, ON_HOST = range(6)
DIRECTION_NAMES: Final = (
    "unknown", "host to device", "device to host", "within a device", "between devices", "host to host",
)  # fmt: skip


class Device(NamedTuple):
    """A GPU, as the file numbers it."""

    number: int
    name: str
    """Empty where the file does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActivity(Table):
    """An export of Nsight Systems, of one machine with all its GPUs and processes.

    [activity] columns are what devices did, in order of start; [call] what host threads asked of the CUDA runtime and
    driver; [range] what the program marked (NVTX). Names of all are numbers of `names`.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    """[activity] never before its start."""
    device: NDArray[np.int32]
    """[activity] number of the GPU."""
    stream: NDArray[np.int32]
    category: NDArray[np.uint8]
    """[activity] `KERNEL` to `SET`."""
    name: NDArray[np.int32]
    """[activity] of `names`; -1 for memory."""
    bytes: NDArray[np.int64]
    """[activity] copied or set; -1: none."""
    direction: NDArray[np.uint8]
    """[activity] `UNKNOWN` to `ON_HOST`, of copies."""
    pageable: NDArray[np.bool_]
    """[activity] whether the host's side of a copy is ordinary memory: such copies are slower and block the host."""
    correlation: NDArray[np.int64]
    """[activity] equal to that of the call that asked for it, within a process; -1: none."""
    process: NDArray[np.int64]
    """[activity] whose it is; -1: not in the file."""

    call_start_ns: NDArray[np.int64]
    call_end_ns: NDArray[np.int64]
    call_name: NDArray[np.int32]
    call_thread: NDArray[np.int64]
    """[call] process and thread in one number."""
    call_correlation: NDArray[np.int64]

    range_start_ns: NDArray[np.int64]
    range_end_ns: NDArray[np.int64]
    range_name: NDArray[np.int32]
    range_thread: NDArray[np.int64]

    system_start_ns: NDArray[np.int64]
    system_end_ns: NDArray[np.int64]
    system_name: NDArray[np.int32]
    system_thread: NDArray[np.int64]
    """[system] calls of the operating system that took long (`OSRT_API`)."""

    names: tuple[str, ...]
    devices: tuple[Device, ...]
    """Those with activity."""
    product: str
    """Version of Nsight Systems; empty where the file does not say it."""
    schema: str
    absent: tuple[str, ...]
    """What a whole export has and this one has not, as tables are called."""
    dropped: int
    """Rows left out: a time is missing, or the end is before the start."""

    def process_of(self, thread: NDArray[np.int64]) -> NDArray[np.int64]:
        """The process of a thread: the lowest 24 bits number the thread within it."""
        return thread & ~np.int64((1 << 24) - 1)
