"""The collectives of one rank, in the order in which they ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.intervals import Times
from rankscope.records.imported.device_trace import ANNOTATION, COLLECTIVE, DeviceTrace

MOST: Final = 2_000
"""Of one rank; the rest is counted, not compared. A trace of a few steps has some thousands."""

_BYTES: Final = {
    "double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "int32": 4, "half": 2, "float16": 2, "bfloat16": 2,
    "short": 2, "char": 1, "byte": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "complexfloat": 8,
}  # fmt: skip
_OPERATION: Final = re.compile(
    r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|send_?recv|sendrecv|reduce|gather|scatter|send|recv)",
    re.IGNORECASE,
)
ALL_WAIT: Final = ("allreduce", "reducescatter", "allgather", "alltoall")
"""No rank can be done with one of these before every rank has begun."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What must be equal for two calls on two ranks to be the same one."""

    group: str
    """Of the process group: its name and its ranks; empty where the file says neither."""
    operation: str
    """As `allreduce`; empty: unknown (RCCL runs all in one kernel)."""
    size: int
    """Bytes of its larger side; -1: unknown."""
    ranks: tuple[int, ...]
    """Empty: unknown."""
    num_ranks: int
    """-1: unknown."""

    @property
    def waits_for_all(self) -> bool:
        return self.operation in ALL_WAIT


@dataclass(frozen=True, slots=True)
class Collectives:
    """All columns are [call], by start."""

    kinds: tuple[Kind, ...]
    kind: NDArray[np.int32]
    lane: NDArray[np.int32]
    """The stream: calls of one group share one."""
    start: Times
    duration: Times
    sequence: NDArray[np.int64]
    """-1: the file does not number them."""
    left_out: int

    def __len__(self) -> int:
        return len(self.start)


def collectives_of(trace: DeviceTrace) -> Collectives:
    """Those that ran on the device; names of operations come from the arguments, or else from the kernel's name."""
    rows = np.flatnonzero(trace.category[trace.collective_span] == COLLECTIVE)
    if not len(rows):
        return _of_host(trace)
    rows = rows[np.argsort(trace.start_ns[trace.collective_span[rows]], kind="stable")]
    left_out = max(0, len(rows) - MOST)
    rows = rows[:MOST]
    spans = trace.collective_span[rows]
    larger = np.maximum(trace.collective_elements_in[rows], trace.collective_elements_out[rows])
    key = np.column_stack(
        (
            trace.collective_operation[rows], trace.collective_group[rows], trace.collective_ranks[rows],
            trace.collective_dtype[rows], trace.collective_group_size[rows], larger, trace.name[spans],
        )
    ).astype(np.int64)  # fmt: skip
    different, kind = np.unique(key, axis=0, return_inverse=True)
    return Collectives(
        kinds=tuple(_kind(trace, row) for row in different.tolist()),
        kind=kind.reshape(-1).astype(np.int32),
        lane=trace.lane[spans],
        start=trace.start_ns[spans],
        duration=trace.duration_ns[spans],
        sequence=trace.collective_sequence[rows],
        left_out=left_out,
    )


def _of_host(trace: DeviceTrace) -> Collectives:
    """Those of gloo: ranges of its own threads, which last until all have come and the data have gone."""
    names = {at: name for at, name in enumerate(trace.names) if name.startswith("gloo:")}
    spans = np.flatnonzero(np.isin(trace.name, np.array(list(names), np.int32)) & (trace.category == ANNOTATION))
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    left_out = max(0, len(spans) - MOST)
    spans = spans[:MOST]
    number, kind = np.unique(trace.name[spans], return_inverse=True)
    return Collectives(
        kinds=tuple(Kind("gloo", operation_of(names[one]), -1, (), -1) for one in number.tolist()),
        kind=kind.reshape(-1).astype(np.int32),
        lane=np.zeros(len(spans), np.int32),
        start=trace.start_ns[spans],
        duration=trace.duration_ns[spans],
        sequence=np.full(len(spans), -1, np.int64),
        left_out=left_out,
    )


def _kind(trace: DeviceTrace, row: list[int]) -> Kind:
    operation, group, ranks, dtype, num_ranks, elements, name = row

    def text(number: int) -> str:
        return trace.names[number] if number >= 0 else ""

    numbers = _numbers(text(ranks))
    if not numbers and group >= 0:
        numbers = next((one.ranks for one in trace.groups if one.name == text(group)), ())
    width = _BYTES.get(text(dtype).lower().removeprefix("c10::").removeprefix("torch."), 0)
    return Kind(
        group=":".join(part for part in (text(group), text(ranks)) if part),
        operation=operation_of(text(operation) or text(name)),
        size=elements * width if elements >= 0 and width else -1,
        ranks=numbers,
        num_ranks=num_ranks if num_ranks > 0 else len(numbers) or -1,
    )


def operation_of(name: str) -> str:
    """`allreduce`, `allgather`, ... from what a file or a kernel calls it; empty where it does not say."""
    found = _OPERATION.search(name)
    return found[1].lower().replace("_", "") if found else ""


def _numbers(text: str) -> tuple[int, ...]:
    """`[0, 1]`; of many ranks the file has `[0, 1, ..., 63]` with some left out: then none."""
    if "..." in text:
        return ()
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text)[:65_536])
