"""How records of a run are named and what is said of each: one draft a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import timeline as phases
from rankscope.analysis.facts import PLACE_COLONS
from rankscope.analysis.stacks import parse_class_place, parse_place
from rankscope.analysis.tables import Rows, Tables, column
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait, PendingCollective
from rankscope.records.host import Compile, DeviceWait, GcPause
from rankscope.records.loading import BatchWait, Fetch, LoaderStart, WorkerStart
from rankscope.records.record import Record
from rankscope.records.training import Backward, Forward, Module, OptimizerStep, Span, Step
from rankscope.report.timeline.batch import Batch, Draft
from rankscope.report.timeline.parts import Floats, Flow, Ints

PAUSE, COMPILATION, DEVICE, LOADER, USER = "gc", "compile", "device wait", "loader", "user code"
"""Categories beside the phases."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one kind is drawn."""

    category: str
    name: str
    """What stands before the record's own name."""
    own: str = "name"
    """The field that names it; empty: nothing does."""
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Fields that hold name ids."""
    own_is_category: bool = False


LOOKS: dict[type[Record], Look] = {
    Forward: Look(phases.FORWARD, "forward", "model", ("elements", "training", "grad", "autocast"), ("shape",)),
    Backward: Look(phases.BACKWARD, "backward", "", ("collectives",), ("site",)),
    OptimizerStep: Look(phases.OPTIMIZER, "optimizer", "name", ("optimizer", "lr")),
    Span: Look(phases.OTHER, "", "name", ("bytes",), ("detail", "site"), own_is_category=True),
    BatchWait: Look(phases.DATA, "next batch", "name", ("ordinal", "workers")),
    LoaderStart: Look(phases.DATA, "loader starts", "name", ("workers", "reused"), ("site",)),
    Collective: Look(
        phases.COMMUNICATION, "", "name", ("sequence", "bytes", "elements", "in_backward"), ("group", "shape", "site")
    ),
    PendingCollective: Look(
        phases.COMMUNICATION, "has not returned:", "name", ("sequence", "bytes", "elements", "in_backward"),
        ("group", "shape", "site"),
    ),
    CommunicationWait: Look(phases.COMMUNICATION, "waits:", "name", ("sequence",), ("group", "site")),
    CommunicationCode: Look(phases.COMMUNICATION, "communication hook", "name", ("bytes",)),
    GcPause: Look(PAUSE, "garbage collection", "", ("generation", "collected")),
    Compile: Look(COMPILATION, "compile", "name", ("ordinal", "limit"), ("reason",)),
    DeviceWait: Look(DEVICE, "waits for the device:", "name", (), ("site",)),
    Fetch: Look(LOADER, "fetch", "name", ("samples", "cpu_ns", "first_index")),
    WorkerStart: Look(LOADER, "worker starts", "name", ("worker",)),
    Module: Look("module", "", "name", ("numel", "leaf", "grad", "training", "full_precision"), ("class_name",)),
}  # fmt: skip
"""Spans of a rank or of its loader workers. `Step` has a lane of its own."""


def draft(batch: Batch, tables: Tables, kind: type[Record], rows: Rows, *flows: Flow) -> Draft:
    """Records of one kind and one process as `LOOKS` has them."""
    look = LOOKS[kind]
    pid = int(rows["process"][0]) if len(rows) else 0
    start = rows["time_ns"].astype(np.int64)
    category = batch.same(look.category, len(rows))
    if look.own:
        ids = column(rows, kind, look.own)
        name = batch.texts(ids, lambda id: f"{look.name} {shown(tables.name(pid, id))}".strip() or kind.kind)
        if look.own_is_category:
            category = batch.texts(ids, lambda id: tables.name(pid, id) or phases.OTHER)
    else:
        name = batch.same(look.name, len(rows))
    numbers: dict[str, Ints | Floats] = {field: _values(column(rows, kind, field)) for field in look.numbers}
    numbers["step"] = rows["step"].astype(np.int64)
    said = {field: batch.texts(column(rows, kind, field), _named(tables, pid)) for field in look.texts}
    return Draft(start, start + rows["duration_ns"].astype(np.int64), name, category, numbers, said, flows)


def steps_draft(batch: Batch, rows: Rows, began_ns: int) -> Draft:
    """Finished steps of one rank. `began_ns`: when its first step began, which is recorded as a moment."""
    number = rows["step"].astype(np.int64)
    start = rows["time_ns"].astype(np.int64)
    end = start + rows["duration_ns"].astype(np.int64)
    return Draft(
        np.where(end > start, start, np.minimum(began_ns, start)), end, batch.texts(number, lambda n: f"step {n}"),
        batch.same("step", len(rows)),
        {"step": number, "micro_batches": _values(column(rows, Step, "micro_batches"))},
    )  # fmt: skip


def shown(text: str) -> str:
    """A name as people read it: of a place its function and line, else itself."""
    if text.count(":") >= PLACE_COLONS and text.rpartition(":")[0].rpartition(":")[2].isdigit():
        return parse_place(text).short
    return text


def _named(tables: Tables, pid: int) -> Callable[[int], str]:
    def name(id: int) -> str:
        text = tables.name(pid, id)
        if "|" in text:
            cls, place = parse_class_place(text)
            return f"{cls} ({place.file}:{place.line})" if place is not None else cls
        return text

    return name


def _values(values: NDArray[np.generic]) -> Ints | Floats:
    return values.astype(np.float64) if values.dtype.kind == "f" else values.astype(np.int64)
