"""The records of one run in memory: one array a kind, names and stacks by process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.records.batches import LoaderPass, SampleError
from rankscope.records.host import Compile, Counter, GcPause, Goodbye, Lost, ProcessEnd
from rankscope.records.inventory import Inventory, decode_inventory
from rankscope.records.kinds import KINDS
from rankscope.records.loading import BatchWait, Fetch, LoaderStart, WorkerStart
from rankscope.records.payload import INVENTORY, NAME, PROCESS, STACK
from rankscope.records.process import Process, decode_process
from rankscope.records.record import Record, sources
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Step
from rankscope.store.store import Store

Rows = NDArray[np.void]
COLUMNS = [name for name in ROW_DTYPE.names or () if name != "seal"]

MAX_RANK_STEPS = 60_000
"""Steps x ranks that are read at once (about 1.5 M rows, 300 MB); of a longer run the newest, and FIRST_STEPS."""
FIRST_STEPS = 500
"""Steps of a long run that are read beside the newest ones: start-up, warm-up and the first epoch are among them."""

_WHOLE_RUN = (
    BatchWait, LoaderStart, LoaderPass, Fetch, SampleError, WorkerStart, GcPause, Compile, Counter, ProcessEnd, Goodbye,
    Lost,
)  # fmt: skip
"""Kinds that are read of all steps: few a step, written by processes that count no steps, or asked for as a whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a run that is read: all of it, or one attempt of several. Monotonic clock, 0: no bound."""

    since_ns: int = 0
    until_ns: int = 0
    stopped_ns: int = 0
    """When we began to end its processes: what they did from then on says nothing about them."""

    def holds(self, process: Process) -> bool:
        """Whether a process began in it. The recorder, which does not say when it began, is in every part."""
        began = process.started_ns
        return not began or (began >= self.since_ns and (not self.until_ns or began < self.until_ns))

    @property
    def where(self) -> str:
        """The condition of SQL for its records."""
        conditions = [f"time_ns >= {self.since_ns}"] if self.since_ns else []
        if self.until_ns:
            conditions.append(f"time_ns < {self.until_ns}")
        if self.stopped_ns:
            conditions.append(f"(time_ns + duration_ns <= {self.stopped_ns} OR kind = {ProcessEnd.code})")
        return " AND ".join(conditions) or "true"


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Tables:
    """Rows by kind in time order, with the texts that they refer to. What every analysis starts from."""

    rows: Mapping[int, Rows]
    names: Mapping[int, Mapping[int, str]]
    """process -> name id -> text."""
    stacks: Mapping[int, Mapping[int, tuple[int, ...]]]
    """process -> stack id -> name ids of its frames, innermost first."""
    processes: Mapping[int, Process]
    inventories: Mapping[int, tuple[Inventory, ...]] = field(default_factory=dict)
    """process -> what it trained, oldest first."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Why -> number of records that were lost."""
    skipped_steps: int = 0
    """Steps of a long run that were left in the store."""
    stopped_ns: int = 0
    """When we began to end the processes; 0: we did not."""

    def of(self, kind: type[Record]) -> Rows:
        """All rows of one kind, by time."""
        rows = self.rows.get(kind.code)
        return rows if rows is not None else np.empty(0, ROW_DTYPE)

    def name(self, process: int, id: int) -> str:
        """The text of a name id of a process; "" for 0, "?" where it was lost."""
        if not id:
            return ""
        return self.names.get(process, {}).get(id, "?")


def column(rows: Rows, kind: type[Record], name: str) -> NDArray[Any]:
    """One field of a kind over all its rows: bits cut out, floats read back; names stay ids."""
    source = sources(kind)[name]
    word = rows[source.word]
    if source.is_float and source.bits == 64:
        return np.ascontiguousarray(word).view(np.float64)
    if source.is_float:
        halves = np.ascontiguousarray(word).view(np.float32)  # little-endian: the lower half stands first
        return halves[source.shift // 32 :: 2].astype(np.float64)
    if source.bits == 64 or source.word in ("step", "process", "name"):
        return word.astype(np.int64)
    return (word.astype(np.int64) >> source.shift) & ((1 << source.bits) - 1)


def load(store: Store, part: Part = WHOLE) -> Tables:
    """Read one run, or a part of it, from a store."""
    first, skipped = _window(store, part)
    always = ", ".join(str(kind.code) for kind in _WHOLE_RUN)
    steps = f"(step < {FIRST_STEPS} OR step >= {first} OR kind IN ({always}))" if first else "true"
    columns = ", ".join(COLUMNS)
    table = store.query(
        f"SELECT {columns} FROM slots WHERE {steps} AND {part.where} ORDER BY kind, time_ns, commit"
    )
    rows = np.zeros(table.num_rows, ROW_DTYPE)
    for name in COLUMNS:
        rows[name] = _numbers(table.column(name), rows.dtype[name])
    payloads = store.query("SELECT process, kind, id, text FROM payloads ORDER BY batch")
    texts = [payloads.column(name).to_pylist() for name in ("process", "kind", "id", "text")]
    tables = make_tables(rows, list(zip(*texts, strict=True)), skipped)
    processes = {pid: process for pid, process in tables.processes.items() if part.holds(process)}
    return replace(tables, processes=processes, stopped_ns=part.stopped_ns)


def _numbers(chunks: Any, kind: Any) -> NDArray[Any]:
    """The numbers of an Arrow column without nulls; its own `to_numpy` would import pandas, a third of a second."""
    parts = [np.frombuffer(c.buffers()[1], kind, len(c), c.offset * kind.itemsize) for c in chunks.chunks if len(c)]
    return np.concatenate(parts) if parts else np.empty(0, kind)


def _window(store: Store, part: Part) -> tuple[int, int]:
    """(first step to read, steps left out) for a run that is too long to be read whole."""
    of_steps = f"WHERE kind = {Step.code} AND {part.where}"
    answer = store.query(f"SELECT count() AS n, max(step) AS last FROM slots {of_steps}").to_pylist()[0]
    count, last = int(answer["n"]), int(answer["last"])
    if count <= MAX_RANK_STEPS:
        return 0, 0
    kept = last * MAX_RANK_STEPS // count
    return last - kept, max(0, last - kept - FIRST_STEPS)


def make_tables(rows: Rows, payloads: list[tuple[int, int, int, str]], skipped: int = 0) -> Tables:
    """Tables from rows (any order) and payloads `(process, kind, id, text)`, oldest first."""
    names: dict[int, dict[int, str]] = {}
    stacks: dict[int, dict[int, tuple[int, ...]]] = {}
    processes: dict[int, Process] = {}
    inventories: dict[int, list[Inventory]] = {}
    for process, kind, id, text in payloads:
        if kind == NAME:
            names.setdefault(process, {})[id] = text
        elif kind == STACK:
            stacks.setdefault(process, {})[id] = tuple(int(x) for x in text.split())
        elif kind == PROCESS:
            processes[process] = decode_process(text)
        elif kind == INVENTORY:
            inventories.setdefault(process, []).append(decode_inventory(text))
    by_kind: dict[int, Rows] = {}
    if len(rows):
        rows = rows[np.lexsort((rows["commit"], rows["time_ns"], rows["kind"]))]
        kinds, starts = np.unique(rows["kind"], return_index=True)
        for kind, start, end in zip(kinds, starts, [*starts[1:], len(rows)], strict=True):
            if int(kind) in KINDS:
                by_kind[int(kind)] = rows[start:end]
    lost: dict[str, int] = {}
    for row in by_kind.get(Lost.code, np.empty(0, ROW_DTYPE)):
        why = names.get(int(row["process"]), {}).get(int(row["name"]), "unknown")
        lost[why] = lost.get(why, 0) + int(row["a"])
    kept = {process: tuple(sorted(all_of, key=lambda one: one.step)) for process, all_of in inventories.items()}
    return Tables(by_kind, names, stacks, processes, kept, lost, skipped)
