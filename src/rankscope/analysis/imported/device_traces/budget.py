"""What each moment of a step went to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.intervals import EMPTY, Intervals, covered, either, minus, union
from rankscope.analysis.imported.device_traces.steps import Steps
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.records.imported.device_trace import (
    ANNOTATION,
    MEMCPY,
    MEMSET,
    OPERATOR,
    PYTHON,
    RUNTIME,
    DeviceTrace,
)  # fmt: skip

PARTS: Final = ("compute", "communication", "copy", "fill", "runtime", "data", "host", "other")
"""In order of precedence: a moment goes to the first of them that was under way. `runtime` are calls of CUDA or HIP,
`data` is the loader, `host` any operator, `other` what nothing was recorded of."""

_LOADER: Final = re.compile(
    r"^enumerate\(DataLoader\)#|torch/utils/data/dataloader\.py\(\d+\): __next__$|^\[pl\].*train_dataloader_next"
)


def loader_names(names: Sequence[str]) -> NDArray[np.int32]:
    """Numbers of names that stand for waiting for a batch."""
    return np.array([at for at, name in enumerate(names) if _LOADER.search(name)], np.int32)


def loading(trace: DeviceTrace) -> Intervals:
    """When a thread of the host asked the loader for a batch."""
    numbers = loader_names(trace.names)
    if not len(numbers):
        return EMPTY
    return host_spans(trace, np.isin(trace.name, numbers) & np.isin(trace.category, (OPERATOR, ANNOTATION, PYTHON)))


def host_spans(trace: DeviceTrace, chosen: NDArray[np.bool_]) -> Intervals:
    """The times of the chosen spans."""
    start = trace.start_ns[chosen]
    return union(start, start + trace.duration_ns[chosen])


def budget_of(trace: DeviceTrace, work: Work, steps: Steps) -> NDArray[np.float64]:
    """[step, part] ns; each row adds up to its step."""
    parts = (
        work.compute,
        work.communication,
        _of(work, MEMCPY),
        _of(work, MEMSET),
        host_spans(trace, trace.category == RUNTIME),
        loading(trace),
        host_spans(trace, trace.category == OPERATOR),
    )
    found = np.zeros((len(steps), len(PARTS)))
    taken = EMPTY
    for at, part in enumerate(parts):
        found[:, at] = covered(minus(part, taken), steps.start, steps.end)
        taken = either(taken, part)
    found[:, -1] = steps.end - steps.start - found.sum(axis=1)
    return found


def _of(work: Work, category: int) -> Intervals:
    chosen = work.category == category
    return union(work.start[chosen], work.end[chosen])
