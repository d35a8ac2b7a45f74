"""What one rank of a run did, lane by lane: steps, training thread, collectives, modules, other threads, workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rankscope.analysis import timeline as phases
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.timeline import Timeline
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait, PendingCollective
from rankscope.records.host import Compile, DeviceWait, GcPause
from rankscope.records.loading import BatchWait, Fetch, LoaderStart, WorkerStart
from rankscope.records.record import Record
from rankscope.records.training import Backward, Forward, Module, OptimizerStep, Span, Step
from rankscope.report.timeline.batch import NO_NUMBER, NONE, Batch, Draft
from rankscope.report.timeline.parts import Flow, Ints
from rankscope.report.timeline.run_names import USER, draft, steps_draft
from rankscope.report.timeline.window import Window

TRAINING = (
    Forward, Backward, OptimizerStep, Span, BatchWait, LoaderStart, CommunicationWait, CommunicationCode, GcPause,
    Compile, DeviceWait, Fetch,
)  # fmt: skip
"""Kinds of a rank's thread that trains; those of its collectives and modules have lanes of their own."""
OTHER_THREADS = (*TRAINING, Collective)
WORKER = (Fetch, WorkerStart, GcPause)
DRAWN: tuple[type[Record], ...] = (Step, Module, PendingCollective, WorkerStart, *OTHER_THREADS)


def rank_lanes(facts: Facts, position: int, window: Window, flow: Flow) -> Iterator[tuple[str, Batch]]:
    """(name, what is drawn) of each lane of a rank, from top to bottom. `flow`: over its collectives."""
    lane = training_lane(facts, position)
    steps = Batch()
    segments = facts.timelines[position].segments
    began_ns = int(segments["start"][0]) if len(segments) else window.begin_ns
    steps.add(steps_draft(steps, _rows(facts, Step, position, window), began_ns))
    yield "steps", steps
    yield "training thread", _training(facts, position, window, lane)
    calls = Batch()
    calls.add(_collectives(calls, facts, position, window, flow))
    calls.add(_pending(calls, facts, position, window))
    yield "collectives", calls
    modules = Batch()
    modules.add(draft(modules, facts.tables, Module, _rows(facts, Module, position, window)))
    yield "modules", modules
    for other in sorted(_lanes(facts, position, window) - {lane}):
        thread = Batch()
        for kind in OTHER_THREADS:
            rows = _rows(facts, kind, position, window)
            thread.add(draft(thread, facts.tables, kind, rows[rows["lane"] == other]))
        yield f"thread {other}", thread
    yield from _workers(facts, position, window)


def training_lane(facts: Facts, position: int) -> int:
    """The lane of the thread that trains."""
    return next((int(rows["lane"][0]) for rows in facts.timelines[position].rows.values() if len(rows)), 0)


def _rows(facts: Facts, kind: type[Record], position: int, window: Window) -> Rows:
    return _inside(facts.rows(kind, position, window=False), window)


def _inside(rows: Rows, window: Window) -> Rows:
    start = rows["time_ns"].astype(np.int64)
    return np.asarray(rows[window.touched(start, start + rows["duration_ns"].astype(np.int64))])


def _lanes(facts: Facts, position: int, window: Window) -> set[int]:
    found: set[int] = set()
    for kind in OTHER_THREADS:
        found.update(np.unique(_rows(facts, kind, position, window)["lane"]).tolist())
    return found


def _training(facts: Facts, position: int, window: Window, lane: int) -> Batch:
    batch = Batch()
    own = facts.timelines[position]
    for kind in TRAINING:
        rows = _rows(facts, kind, position, window)
        rows = rows[rows["lane"] == lane]
        made = draft(batch, facts.tables, kind, rows)
        batch.add(replace(made, name=_waits(batch, facts, position, rows)) if kind is CommunicationWait else made)
    batch.add(_tails(batch, facts, position, own, window))
    batch.add(_user_code(batch, own, window))
    return batch


def _waits(batch: Batch, facts: Facts, position: int, rows: Rows) -> Ints:
    """Names of blocking waits: each is for the collective that was entered last before its end."""
    calls = facts.timelines[position].collectives
    pid = facts.ranks[position].pid
    ends = rows["time_ns"].astype(np.int64) + rows["duration_ns"].astype(np.int64)
    at = np.searchsorted(calls["time_ns"].astype(np.int64), ends) - 1
    ids = np.where(at >= 0, calls["name"][at].astype(np.int64), NONE) if len(calls) else np.full(len(rows), NONE)
    return batch.texts(ids, lambda id: f"waits for {facts.tables.name(pid, id)}" if id != NONE else "waits")


def _tails(batch: Batch, facts: Facts, position: int, own: Timeline, window: Window) -> Draft:
    """At the end of a backward: the wait, in C++, for the collectives that it has started."""
    segments = own.segments
    segments = segments[(segments["kind"] == Backward.code) & (segments["collective"] >= 0)]
    segments = segments[window.touched(segments["start"], segments["end"])]
    call, inverse = np.unique(segments["collective"].astype(np.int64), return_inverse=True)
    start, end = np.full(len(call), np.iinfo(np.int64).max), np.zeros(len(call), np.int64)
    np.minimum.at(start, inverse, segments["start"])  # a pause has cut it in two
    np.maximum.at(end, inverse, segments["end"])
    pid = facts.ranks[position].pid
    names = own.collectives["name"][call].astype(np.int64)
    return Draft(
        start, end, batch.texts(names, lambda id: f"waits for {facts.tables.name(pid, id)}"),
        batch.same(phases.COMMUNICATION, len(call)),
        {"sequence": column(own.collectives[call], Collective, "sequence").astype(np.int64)},
    )  # fmt: skip


def _user_code(batch: Batch, own: Timeline, window: Window) -> Draft:
    """Code of the user's between the phases, where it is known which phase it serves."""
    segments = own.segments
    segments = segments[(segments["kind"] == 0) & (segments["phase"] != own.phase_id(phases.OTHER))]
    segments = segments[window.touched(segments["start"], segments["end"])]
    phase = segments["phase"].astype(np.int64)
    return Draft(
        segments["start"].astype(np.int64), segments["end"].astype(np.int64),
        batch.texts(phase, lambda id: f"{USER}: {own.phases[id]}"), batch.texts(phase, lambda id: own.phases[id]),
    )  # fmt: skip


def _collectives(batch: Batch, facts: Facts, position: int, window: Window, flow: Flow) -> Draft:
    """The calls of the training thread, with who came last and how long before that this rank was there."""
    calls = facts.timelines[position].collectives
    start = calls["time_ns"].astype(np.int64)
    chosen = np.flatnonzero(window.touched(start, start + calls["duration_ns"].astype(np.int64)))
    made = draft(batch, facts.tables, Collective, calls[chosen], Flow(flow.id[chosen], flow.role[chosen]))
    last = facts.matches.last_rank[position][chosen]
    early = (facts.matches.last_enter[position][chosen] - start[chosen]) / 1e3
    numbers = np.array([rank.rank for rank in facts.ranks], np.int64)
    who = {
        "last rank to enter": np.where(last >= 0, numbers[last], NO_NUMBER),
        "us before the last rank": np.where(last >= 0, early, np.nan),
    }
    return replace(made, numbers={**made.numbers, **who})


def _pending(batch: Batch, facts: Facts, position: int, window: Window) -> Draft:
    """Calls that never came back: they last to the end. The call before is noted as well, which may have come back."""
    rows = facts.rows(PendingCollective, position, window=False)
    back = facts.rows(Collective, position, window=False)["a"]
    rows = rows[(rows["time_ns"] <= window.end_ns) & ~np.isin(rows["a"], back)]
    rows = rows[np.sort(np.unique(rows["a"], return_index=True)[1])]  # noted more than once
    made = draft(batch, facts.tables, PendingCollective, rows)
    return replace(made, end_ns=np.maximum(made.end_ns, window.end_ns))


def _workers(facts: Facts, position: int, window: Window) -> Iterator[tuple[str, Batch]]:
    """Loader workers by their number: those that follow each other under one number share a lane."""
    lanes: dict[int, Batch] = {}
    for pid in facts.ranks[position].workers:
        process = facts.tables.processes.get(pid)
        batch = lanes.setdefault(process.worker if process is not None else -1, Batch())
        for kind in WORKER:
            rows = facts.tables.of(kind)
            batch.add(draft(batch, facts.tables, kind, _inside(rows[rows["process"] == pid], window)))
    for number, batch in sorted(lanes.items()):
        yield f"loader worker {number}" if number >= 0 else "loader worker", batch
