"""What an event is, from the category that one of many versions and vendors gave it, and from its name."""

from __future__ import annotations

import re
from typing import Final

from rankscope.records.imported.device_trace import (
    ANNOTATION,
    COLLECTIVE,
    DEVICE_ANNOTATION,
    DEVICE_WORK,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATOR,
    OTHER,
    OVERHEAD,
    PROFILER_RANGE,
    PYTHON,
    RUNTIME,
    SYNC,
)  # fmt: skip

_KNOWN: Final = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,  # 2021
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "hpu_op": KERNEL,
    "collective_comm": COLLECTIVE,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "gpu_user_annotation": DEVICE_ANNOTATION,
    "cuda_sync": SYNC,
    "overhead": OVERHEAD,
    "cuda_profiler_range": PROFILER_RANGE,
    "runtime": RUNTIME,
    "driver": RUNTIME,
}
WINDOW: Final = OTHER + 1
"""The span that says from when to when was profiled; never leaves the reader."""

_COMMUNICATES: Final = re.compile(
    r"nccl|rccl|hccl_|oneccl|msccl|cross_device_reduce|(one|two)_shot_all_?reduce|multimem_(all|one)|deep_ep::"
    r"|all_?reduce_fusion|nvshmem",
    re.IGNORECASE,
)


class Categories(dict[str | None, int]):
    """Our number of each category of the file, worked out once."""

    def __missing__(self, text: str | None) -> int:
        number = self[text] = _category(text)
        return number


def _category(text: str | None) -> int:
    if text is None:
        return OTHER
    if text == "Trace":
        return WINDOW
    lower = text.lower()
    if lower.endswith(("_runtime", "_driver")):  # cuda, hip, xpu, mtia, privateuse1
        return RUNTIME
    return _KNOWN.get(lower, OTHER)


def by_name(name: str, category: int) -> int:
    """The category, corrected by what only the name tells."""
    if category == KERNEL and _COMMUNICATES.search(name):
        return COLLECTIVE
    if category == KERNEL and name.startswith(("Memcpy ", "CopyHostToDevice", "CopyDeviceToHost")):
        return MEMCPY
    if category == OPERATOR and name.startswith("ProfilerStep#"):  # 2021: an operator like any other
        return ANNOTATION
    return category


LEGACY_PROCESSES: Final = {"CPU functions": OPERATOR, "CUDA functions": KERNEL}
"""Process names that stood for a category before Kineto (PyTorch up to 1.8)."""

ON_DEVICE: Final = (*DEVICE_WORK, DEVICE_ANNOTATION, SYNC)
"""What lies on a stream, not on a thread."""
