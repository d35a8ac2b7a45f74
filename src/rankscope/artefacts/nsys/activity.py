"""From the tables of an Nsight Systems export to columns."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.nsys.database import Database
from rankscope.artefacts.reader import Unreadable
from rankscope.records.imported import device_activity as table
from rankscope.records.imported.device_activity import Device, DeviceActivity

Ints = NDArray[np.int64]

DEVICE_TABLES: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": table.KERNEL,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": table.GRAPH,
    "CUPTI_ACTIVITY_KIND_MEMCPY": table.COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": table.SET,
}
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES: Final = "NVTX_EVENTS"
SYSTEM: Final = "OSRT_API"
WHOLE: Final = (*DEVICE_TABLES, CALLS, RANGES, SYSTEM)
COLLECTIVES: Final = re.compile(r"nccl|rccl|nvshmem|deep_?ep|all_?reduce_(?:one|two)_?shot|multimem", re.IGNORECASE)
"""Kernels that communicate; others of NCCL's name prepare it, but run beside it as well."""
DIRECTIONS: Final = {1: table.TO_DEVICE, 2: table.TO_HOST, 3: table.TO_DEVICE, 4: table.TO_HOST, 8: table.ON_DEVICE,
                     9: table.ON_HOST, 10: table.BETWEEN_DEVICES, 11: table.TO_DEVICE, 12: table.TO_HOST,
                     13: table.ON_DEVICE}  # fmt: skip
"""`copyKind`, as CUPTI numbers it; 11 to 13 move unified memory."""
PAGEABLE: Final = 0
"""`srcKind` and `dstKind` of ordinary host memory."""
HOST_KINDS: Final = (0, 1)


def activity(db: Database, file: str, rank: int | None) -> DeviceActivity:
    """Raises `Unreadable` where there is no activity of a device."""
    names = _Names(db)
    parts = [_of_device(db, names, name, category) for name, category in DEVICE_TABLES.items()]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not len(columns[0]):
        raise Unreadable(
            "holds no activity of a GPU"
            + ("" if any(db.has(name) for name in DEVICE_TABLES) else ": it was recorded without CUDA (`-t cuda`)")
        )
    order = np.argsort(columns[0], kind="stable")
    start, end, device, stream, category, name, size, direction, pageable, correlation, process = (
        column[order] for column in columns
    )
    calls = db.times(CALLS, (("nameId",), ("globalTid",), ("correlationId",)))
    ranges = db.times(RANGES, (("textId",), ("globalTid",)), marks=True)
    system = db.times(SYSTEM, (("nameId",), ("globalTid",)))
    numbers = np.unique(device)
    gpus = db.texts("TARGET_INFO_GPU", "id", "name", numbers)
    meta = db.pairs("META_DATA_EXPORT", "name", "value")
    call_names, range_names, system_names = names.of(calls[2]), names.ranges(ranges[2]), names.of(system[2])
    return DeviceActivity(
        file=file,
        rank=rank if len(numbers) == 1 else None,
        start_ns=start,
        end_ns=end,
        device=device.astype(np.int32),
        stream=stream.astype(np.int32),
        category=category.astype(np.uint8),
        name=name.astype(np.int32),
        bytes=size,
        direction=direction.astype(np.uint8),
        pageable=pageable.astype(bool),
        correlation=correlation,
        process=process,
        call_start_ns=calls[0],
        call_end_ns=calls[1],
        call_name=call_names,
        call_thread=calls[3],
        call_correlation=calls[4],
        range_start_ns=ranges[0],
        range_end_ns=ranges[1],
        range_name=range_names,
        range_thread=ranges[3],
        system_start_ns=system[0],
        system_end_ns=system[1],
        system_name=system_names,
        system_thread=system[3],
        names=tuple(names.known),
        devices=tuple(Device(int(n), gpus.get(int(n), "")) for n in numbers),
        product=meta.get("EXPORT_PRODUCT_VERSION", ""),
        schema=meta.get("EXPORT_SCHEMA_VERSION", ""),
        absent=tuple(name for name in WHOLE if not db.has(name)),
        dropped=db.dropped,
    )


def _of_device(db: Database, names: _Names, name: str, category: int) -> list[Ints]:
    """(start, end, device, stream, category, name, bytes, direction, pageable, correlation, process)"""
    start, end, device, stream, correlation, process, demangled, short, size, kind, source, target = db.times(
        name,
        (
            ("deviceId",), ("streamId",), ("correlationId",), ("globalPid",), ("demangledName",),
            ("shortName", "nameId"), ("bytes",), ("copyKind",), ("srcKind",), ("dstKind",),
        ),
    )  # fmt: skip
    # A trimmed file of one GPU may have no column for it.
    device = np.where(device < 0, 0, device)
    number = np.full(len(start), -1, np.int64)
    categories = np.full(len(start), category, np.int64)
    if category == table.KERNEL:
        number = names.of(np.where(short >= 0, short, demangled)).astype(np.int64)
        communicates = np.array([bool(COLLECTIVES.search(text)) for text in names.known], bool)
        if len(communicates):
            categories[communicates[number] & (number >= 0)] = table.COLLECTIVE
    direction = np.zeros(len(start), np.int64)
    pageable = np.zeros(len(start), np.int64)
    if category == table.COPY:
        for theirs, ours in DIRECTIONS.items():
            direction[kind == theirs] = ours
        pageable = (((direction == table.TO_DEVICE) & (source == PAGEABLE))
                    | ((direction == table.TO_HOST) & (target == PAGEABLE))).astype(np.int64)  # fmt: skip
    return [start, end, device, stream, categories, number, size, direction, pageable, correlation, process]


class _Names:
    """Texts of the file, each once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.known: dict[str, int] = {}

    def of(self, ids: Ints) -> NDArray[np.int32]:
        """[row] its name's number; -1 where the file has no such text."""
        unique, at = np.unique(ids, return_inverse=True)
        texts = self._db.texts("StringIds", "id", "value", unique)
        numbers = [self._number(texts.get(int(i))) for i in unique]
        return np.array(numbers, np.int32)[at] if len(unique) else np.empty(0, np.int32)

    def ranges(self, ids: Ints) -> NDArray[np.int32]:
        """[row] of marked ranges, whose text stands in the row itself or, where it was registered, among the others."""
        numbers = self.of(ids)
        own = self._db.own_texts(RANGES, "text")
        if len(own) == len(numbers):
            for row in np.flatnonzero(numbers < 0).tolist():
                numbers[row] = self._number(_without_number(own[row]))
        return numbers

    def _number(self, text: str | None) -> int:
        return -1 if text is None else self.known.setdefault(text, len(self.known))


def _without_number(text: str | None) -> str | None:
    """PyTorch writes each operator with a number of its own; a million of different names say less than a few."""
    return None if text is None else text.split(", op_id = ", 1)[0].split(", seq = ", 1)[0]
