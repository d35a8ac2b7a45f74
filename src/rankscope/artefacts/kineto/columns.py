"""Columns out of events, batch by batch."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.kineto.batches import Batch
from rankscope.artefacts.kineto.categories import LEGACY_PROCESSES, ON_DEVICE, WINDOW, Categories, by_name
from rankscope.artefacts.kineto.events import COUNTED, NO_ARGS, Args, ExactSpan, Instant, Meta, Span
from rankscope.artefacts.kineto.lanes import Lanes
from rankscope.artefacts.kineto.names import Numbering
from rankscope.records.imported.device_trace import KERNEL, MEMCPY, MEMSET, OTHER, PROFILER_RANGE, PYTHON, SYNC

DTYPES: Final = {
    "start_ns": np.int64, "duration_ns": np.int64, "name": np.int32, "category": np.uint8, "lane": np.int64,
    "correlation": np.int64, "external": np.int64,
    "copy_span": np.int32, "copy_bytes": np.int64,
    "kernel_span": np.int32, "kernel_blocks_per_sm": np.float32, "kernel_occupancy": np.float32,
    "collective_span": np.int32, "collective_operation": np.int32, "collective_group": np.int32,
    "collective_ranks": np.int32, "collective_group_size": np.int32, "collective_elements_in": np.int64,
    "collective_elements_out": np.int64, "collective_dtype": np.int32, "collective_sequence": np.int64,
    "sync_span": np.int32, "sync_stream": np.int64, "sync_record": np.int64,
    "python_span": np.int32, "python_id": np.int64, "python_parent": np.int64,
    "sequence_span": np.int32, "sequence_number": np.int64, "sequence_forward_thread": np.int64,
    "stack_span": np.int32, "stack_text": np.int32, "module_span": np.int32, "module_text": np.int32,
    "counter_span": np.int32, "counter_name": np.int32, "counter_value": np.float64,
    "memory_ns": np.int64, "memory_bytes": np.int64, "memory_allocated": np.int64, "memory_reserved": np.int64,
    "memory_device": np.int32,
}  # fmt: skip
AnySpan = Span | ExactSpan
_LATEST_US: Final = float(1 << 52)
"""A hundred years and more since the epoch: what is later cannot be a time."""


class Columns:
    """Grows with each `add`; `finished` gives the columns of a `DeviceTrace`, once."""

    def __init__(self) -> None:
        self.names = Numbering()
        self.lanes = Lanes()
        self.dropped = 0
        self.window_ns: tuple[int, int] | None = None
        self._categories = Categories()
        self._parts: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)
        self._spans = 0

    def __len__(self) -> int:
        return self._spans

    def add(self, batch: Batch) -> None:
        self.dropped += batch.dropped
        spans = [event for event in batch.events if type(event) is Span or type(event) is ExactSpan]
        memory: list[Instant] = []
        if len(spans) < len(batch.events):
            for event in batch.events:
                if type(event) is Instant and event.name == "[memory]":
                    memory.append(event)
                elif type(event) is Meta:
                    self.lanes.label(event)
        if memory:
            self._add_memory(memory)
        if spans:
            self._add_spans(spans, batch.text)

    def _put(self, name: str, values: Any) -> None:
        self._parts[name].append(np.asarray(values, DTYPES[name]))

    def _add_spans(self, spans: list[AnySpan], text: bytes) -> None:
        categories = self._categories
        category = np.array([categories[span.cat] for span in spans], np.uint8)
        us = np.array([span.ts for span in spans], np.float64)  # None becomes NaN
        length = np.array([span.dur for span in spans], np.float64)
        good = (np.abs(us) < _LATEST_US) & (length >= 0) & (length < _LATEST_US)
        self.dropped += len(good) - int(good.sum())
        windows = good & (category == WINDOW)
        for at in np.flatnonzero(windows).tolist():
            if "PyTorch Profiler" in spans[at].name or self.window_ns is None:
                begin = int(ns(us[at : at + 1])[0])
                self.window_ns = (begin, begin + round(float(length[at]) * 1e3))
        good &= ~windows
        if not good.all():
            spans = [spans[at] for at in np.flatnonzero(good).tolist()]
            category, us, length = category[good], us[good], length[good]
        if not spans:
            return
        if OTHER in category:
            pairs = zip(spans, category.tolist(), strict=True)
            kinds = [LEGACY_PROCESSES.get(str(span.pid), kind) if kind == OTHER else kind for span, kind in pairs]
            category = np.array(kinds, np.uint8)
        exact = isinstance(spans[0], ExactSpan)
        self._put("start_ns", _exact_ns([span.ts for span in spans]) if exact else ns(us))
        self._put("duration_ns", np.rint(length * 1e3))
        names = self.names
        self._put("name", [names[span.name] for span in spans])
        self._put("category", category)
        on_device = np.isin(category, ON_DEVICE)
        self._put("lane", self.lanes.of([span.pid for span in spans], [span.tid for span in spans], on_device))
        self._add_arguments(spans, category, text)
        self._spans += len(spans)

    def _add_arguments(self, spans: list[AnySpan], category: NDArray[np.uint8], text: bytes) -> None:
        args = [span.args or NO_ARGS for span in spans]
        base = self._spans
        self._put("correlation", _integers([a.correlation for a in args]))
        external = _integers([a.external for a in args])
        for row in np.flatnonzero(external == -1).tolist():
            external[row] = _integer(args[row].external_old)
        self._put("external", external)
        # Asked of the arguments, not of the text: to find that a word is not in it takes longer than to read it.
        self._add_kernels(args, np.flatnonzero(category == KERNEL))
        collectives = [row for row, a in enumerate(args) if a.operation is not None]
        if collectives:
            self._add_collectives(args, collectives)
        self._add_some(args, "copy", np.isin(category, (MEMCPY, MEMSET)), {"bytes": "bytes"})
        self._add_some(args, "python", category == PYTHON, {"id": "python_id", "parent": "python_parent"})
        self._add_some(args, "sync", category == SYNC, {"stream": "sync_stream", "record": "sync_record"})
        sequence = _integers([a.sequence for a in args])
        self._add_some(args, "sequence", sequence >= 0, {"number": "sequence", "forward_thread": "forward_thread"})
        for kind in ("stack", "module"):
            texts = [(row, value) for row, a in enumerate(args) if (value := getattr(a, kind))]
            if texts:
                self._put(f"{kind}_span", [base + row for row, _ in texts])
                self._put(f"{kind}_text", [self.names[value] for _, value in texts])
        if (category == PROFILER_RANGE).any():
            self._add_counters(spans, base, text)

    def _add_some(self, args: list[Args], kind: str, wanted: NDArray[np.bool_], fields: dict[str, str]) -> None:
        rows = np.flatnonzero(wanted)
        if not len(rows):
            return
        chosen = [args[row] for row in rows.tolist()]
        self._put(f"{kind}_span", rows + self._spans)
        for column, field in fields.items():
            self._put(f"{kind}_{column}", _integers([getattr(a, field) for a in chosen]))

    def _add_kernels(self, args: list[Args], rows: NDArray[np.int64]) -> None:
        chosen = [args[row] for row in rows.tolist()]
        self._put("kernel_span", rows + self._spans)
        self._put("kernel_blocks_per_sm", _floats([a.blocks for a in chosen]))
        self._put("kernel_occupancy", _floats([a.occupancy for a in chosen]))

    def _add_collectives(self, args: list[Args], rows: list[int]) -> None:
        chosen = [args[row] for row in rows]
        number = self.names.of
        self._put("collective_span", np.array(rows) + self._spans)
        self._put("collective_operation", [number(a.operation) for a in chosen])
        self._put("collective_group", [number(None if a.group is None else str(a.group)) for a in chosen])
        self._put("collective_ranks", [number(None if a.ranks is None else str(a.ranks)) for a in chosen])
        self._put("collective_group_size", _integers([a.group_size for a in chosen]).clip(-1, 2**31 - 1))
        self._put("collective_elements_in", _integers([a.elements_in for a in chosen]))
        self._put("collective_elements_out", _integers([a.elements_out for a in chosen]))
        self._put("collective_dtype", [number(a.dtype) for a in chosen])
        self._put("collective_sequence", _integers([a.number for a in chosen]))

    def _add_counters(self, spans: list[AnySpan], base: int, text: bytes) -> None:
        """Read once more: their arguments have names of their own."""
        at = {(span.name, span.ts): row for row, span in enumerate(spans)}
        found = []
        try:
            counted = COUNTED.decode(b"[" + text + b"]")
        except msgspec.DecodeError:
            self.dropped += 1
            return
        for one in counted:
            row = at.get((one.name, one.ts))
            if one.cat == "cuda_profiler_range" and row is not None:
                for key, value in (one.args or {}).items():
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        found.append((base + row, self.names[key], float(value)))
        self._put("counter_span", [one[0] for one in found])
        self._put("counter_name", [one[1] for one in found])
        self._put("counter_value", [one[2] for one in found])

    def _add_memory(self, events: list[Instant]) -> None:
        timed = [event for event in events if event.ts is not None and abs(event.ts) < _LATEST_US]
        good = [event for event in timed if event.args is not None and event.args.bytes is not None]
        self.dropped += len(events) - len(good)
        args: list[Any] = [e.args for e in good]
        self._put("memory_ns", ns(np.array([e.ts for e in good], np.float64)))
        self._put("memory_bytes", _integers([a.bytes for a in args]))
        self._put("memory_allocated", _integers([a.allocated for a in args]))
        self._put("memory_reserved", _integers([a.reserved for a in args]))
        device = _integers([a.device for a in args]).clip(-1, 2**31 - 1)
        self._put("memory_device", np.where(_integers([a.device_type for a in args]) == 0, -1, device))

    def finished(self) -> dict[str, NDArray[Any]]:
        """All columns by name; times still as in the file. Nothing is held afterwards."""
        columns = {name: self._joined(name) for name in DTYPES}
        names = list(self.names)
        wanted = np.unique(columns["name"]).tolist()
        for category in (KERNEL, 0):  # OPERATOR
            table = np.full(len(names), category, np.uint8)
            for number in wanted:
                table[number] = by_name(names[number], category)
            at = columns["category"] == category
            columns["category"][at] = table[columns["name"][at]]
        return columns

    def _joined(self, name: str) -> NDArray[Any]:
        parts = self._parts.pop(name, None)
        return np.concatenate(parts) if parts else np.empty(0, DTYPES[name])


def ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """µs in ns; not by one multiplication, of which a float since the epoch has too few digits."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1e3).astype(np.int64)


def _exact_ns(values: list[Any]) -> NDArray[np.int64]:
    """Of decimal numbers of µs."""
    return np.array([int(value.scaleb(3).to_integral_value()) for value in values], np.int64)


def _integers(values: list[Any]) -> NDArray[np.int64]:
    """-1 for what is none."""
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1


def _floats(values: list[Any]) -> NDArray[np.float32]:
    try:
        return np.array(values, np.float32)
    except (TypeError, ValueError):
        return np.array([value if isinstance(value, float) else math.nan for value in values], np.float32)
