"""Threads and streams, numbered."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.kineto.events import Meta
from rankscope.records.imported.device_trace import HOST, Lane

_MOST: Final = 1 << 20
"""Process ids of one file, and thread ids: far more than any has."""
_NUMBER: Final = re.compile(r"-?\d+")
_STREAM: Final = re.compile(r"stream (-?\d+)")


class _Keys(dict[Any, int]):
    def __missing__(self, key: Any) -> int:
        number = self[key] = min(len(self), _MOST - 1)
        return number


class Lanes:
    """A lane is a process and a thread, or a device and a stream: both can have the numbers (0, 0) in one file."""

    def __init__(self) -> None:
        self._processes, self._threads = _Keys(), _Keys()
        self._labels: dict[tuple[str, str], str] = {}
        self._processes_labels: dict[str, str] = {}

    def label(self, event: Meta) -> None:
        """Take a name from an event that gives one."""
        if event.args is None:
            return
        if event.name == "thread_name" and event.args.name is not None:
            self._labels[str(event.pid), str(event.tid)] = str(event.args.name).strip()
        elif event.name == "process_labels" and event.args.labels:
            self._processes_labels[str(event.pid)] = event.args.labels

    def of(self, pids: list[Any], tids: list[Any], on_device: NDArray[np.bool_]) -> NDArray[np.int64]:
        """A number each, not yet that of a lane: `finished` makes it one."""
        processes, threads = self._processes, self._threads
        process = np.array([processes[pid] for pid in pids], np.int64)
        thread = np.array([threads[tid] for tid in tids], np.int64)
        return (process << 21) | (thread << 1) | on_device

    def finished(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], tuple[Lane, ...]]:
        """The lane of each, and all lanes."""
        found, lane = np.unique(numbers, return_inverse=True)
        processes, threads = list(self._processes), list(self._threads)
        lanes = []
        for number in found.tolist():
            process, thread = processes[number >> 21], threads[(number >> 1) & (_MOST - 1)]
            lanes.append(self._lane(str(process), str(thread), on_device=bool(number & 1)))
        return lane.astype(np.int32), tuple(lanes)

    def _lane(self, process: str, thread: str, on_device: bool) -> Lane:
        label = self._labels.get((process, thread), "")
        if not on_device:
            return Lane(process, thread, HOST, label)
        stream = _STREAM.fullmatch(thread)  # 2021
        device = _NUMBER.search(process)
        return Lane(process, stream[1] if stream else thread, max(0, int(device[0])) if device else 0, label)
