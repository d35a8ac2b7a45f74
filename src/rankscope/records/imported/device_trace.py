"""What one rank's profiler saw of host and device (Kineto, `torch.profiler`), as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.table import Table

(
    OPERATOR, ANNOTATION, PYTHON, RUNTIME, KERNEL, COLLECTIVE, MEMCPY, MEMSET, DEVICE_ANNOTATION, SYNC, OVERHEAD,
    PROFILER_RANGE, OTHER,
) = range(13)  # fmt: skip
CATEGORY_NAMES: Final = (
    "operator", "annotation", "python", "runtime", "kernel", "collective", "memcpy", "memset", "device annotation",
    "sync", "overhead", "profiler range", "other",
)  # fmt: skip
"""By number. An operator is PyTorch's (on the host), a runtime call CUDA's or HIP's (runtime and driver), a sync the
device's own record of a wait, a collective a kernel of NCCL, RCCL or their like; profiler ranges carry counters."""
DEVICE_WORK: Final = (KERNEL, COLLECTIVE, MEMCPY, MEMSET)
"""Categories that keep a device busy."""

HOST: Final = -1
"""The `device` of a lane that is a thread."""


class Lane(NamedTuple):
    """A thread of the host or a stream of a device: spans of one thread nest, those of one stream follow each other."""

    process: str
    """The process id, or whatever the file has in its place; of a stream the device's."""
    name: str
    """The thread id as text, or the stream's number."""
    device: int
    """`HOST` for a thread."""
    label: str
    """As the file names the thread or stream; empty where it does not."""


class Group(NamedTuple):
    """A process group, as the file's header lists it."""

    name: str
    description: str
    ranks: tuple[int, ...]


class TimelineSpan(NamedTuple):
    """What a timeline draws of one span."""

    name: str
    category: str
    lane: int
    """Position in `DeviceTrace.lanes`."""
    start_ns: int
    duration_ns: int
    correlation: int
    """Equal for a launch and what it launched; -1: none."""
    collective: int
    """Row of the collectives' columns; -1: it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrace(Table):
    """A trace of `torch.profiler` or another user of Kineto, of one rank.

    [span] columns hold every complete event, in the order of the file. The other columns are short: `x_span` says to
    which span a row of theirs belongs. Names of all kinds are numbers of `names`.
    """

    start_ns: NDArray[np.int64]
    """[span] since the epoch where `wall_clock`, else since an unknown start."""
    duration_ns: NDArray[np.int64]
    """[span] never negative: those that were are counted in `dropped`."""
    name: NDArray[np.int32]
    """[span]"""
    category: NDArray[np.uint8]
    """[span] `OPERATOR` to `OTHER`."""
    lane: NDArray[np.int32]
    """[span] of `lanes`."""
    correlation: NDArray[np.int64]
    """[span] equal for a launch and what it launched (a graph launch has many); -1: none."""
    external: NDArray[np.int64]
    """[span] of an operator its own id, of a launch or a kernel that of the operator it came from; -1: none. In some
    versions a kernel's is its correlation instead."""

    names: tuple[str, ...]
    lanes: tuple[Lane, ...]

    copy_span: NDArray[np.int32]
    copy_bytes: NDArray[np.int64]
    """[copy] memory copied or set."""

    kernel_span: NDArray[np.int32]
    kernel_blocks_per_sm: NDArray[np.float32]
    """[kernel] thread blocks over multiprocessors; NaN: not recorded."""
    kernel_occupancy: NDArray[np.float32]
    """[kernel] estimated, 0 to 100; NaN: not recorded."""

    collective_span: NDArray[np.int32]
    """[collective] of the kernel, or of the host's call where that carries the arguments; `category` of the span tells
    which."""
    collective_operation: NDArray[np.int32]
    """[collective] name, as `allreduce`; -1: the file does not say."""
    collective_group: NDArray[np.int32]
    """[collective] name of the process group; -1: the file does not say."""
    collective_ranks: NDArray[np.int32]
    """[collective] name that holds the group's ranks as text, as `[0, 1]`; -1: the file does not say."""
    collective_group_size: NDArray[np.int32]
    """[collective] -1: the file does not say."""
    collective_elements_in: NDArray[np.int64]
    """[collective] -1: the file does not say."""
    collective_elements_out: NDArray[np.int64]
    collective_dtype: NDArray[np.int32]
    """[collective] name; -1: the file does not say."""
    collective_sequence: NDArray[np.int64]
    """[collective] number within the group, equal on all ranks; -1: the file does not say (most do not)."""

    sync_span: NDArray[np.int32]
    sync_stream: NDArray[np.int64]
    """[sync] the stream that is waited for; -1: none or all."""
    sync_record: NDArray[np.int64]
    """[sync] the correlation of the call that recorded the event that is waited for; -1: none."""

    python_span: NDArray[np.int32]
    python_id: NDArray[np.int64]
    python_parent: NDArray[np.int64]
    """[python] `python_id` of the frame that called it; -1: none."""

    sequence_span: NDArray[np.int32]
    sequence_number: NDArray[np.int64]
    """[sequence] autograd's: equal for an operator and its backward, for one forward thread."""
    sequence_forward_thread: NDArray[np.int64]
    """[sequence] above 0 only in the backward."""

    stack_span: NDArray[np.int32]
    stack_text: NDArray[np.int32]
    """[stack] name: an operator's Python call stack, `file(line): function;...` innermost first (2021 to 2022)."""
    module_span: NDArray[np.int32]
    module_text: NDArray[np.int32]
    """[module] name: an operator's module hierarchy (`with_modules`)."""

    counter_span: NDArray[np.int32]
    counter_name: NDArray[np.int32]
    counter_value: NDArray[np.float64]
    """[counter] a hardware counter over a profiler range."""

    memory_ns: NDArray[np.int64]
    memory_bytes: NDArray[np.int64]
    """[memory] what was allocated, negative where freed."""
    memory_allocated: NDArray[np.int64]
    """[memory] in all after it; -1: not recorded (before PyTorch 1.10)."""
    memory_reserved: NDArray[np.int64]
    memory_device: NDArray[np.int32]
    """[memory] `HOST`: of the host."""

    wall_clock: bool
    """Whether times are since the epoch, so that traces of several ranks can be laid side by side within the error of
    their machines' clocks."""
    window_ns: tuple[int, int] | None
    """From start to end of profiling, as the profiler says; None: it does not."""
    complete: bool
    """False where the file ends too early or is damaged in between."""
    dropped: int
    """Events that could not be used: no time stamp, a negative duration, no object."""

    world_size: int | None
    backend: str | None
    groups: tuple[Group, ...]
    device_names: tuple[str, ...]
    num_sms: int | None
    """Multiprocessors of its first device."""
    versions: tuple[tuple[str, str], ...]
    """What the header says of software: (`nccl_version`, `2.21.5`)."""

    def spans(self, chosen: NDArray[np.integer] | None = None) -> Iterator[TimelineSpan]:
        """What a timeline needs, span by span in the order of the file, or only those `chosen` by position.

        Lanes are drawn as tracks (`lanes`); a launch and its kernels are joined by `correlation`; collectives of
        several ranks by their rows in the collectives' columns.
        """
        at = np.arange(len(self.start_ns)) if chosen is None else chosen
        collective = np.full(len(self.start_ns), -1, np.int32)
        collective[self.collective_span] = np.arange(len(self.collective_span), dtype=np.int32)
        names, block = self.names, 65_536  # rows of Python numbers at a time: a trace has millions
        for first in range(0, len(at), block):
            rows = at[first : first + block]
            for name, category, lane, start, duration, correlation, row in zip(
                self.name[rows].tolist(),
                self.category[rows].tolist(),
                self.lane[rows].tolist(),
                self.start_ns[rows].tolist(),
                self.duration_ns[rows].tolist(),
                self.correlation[rows].tolist(),
                collective[rows].tolist(),
                strict=True,
            ):
                yield TimelineSpan(names[name], CATEGORY_NAMES[category], lane, start, duration, correlation, row)
