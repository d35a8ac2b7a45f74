"""What each rank's training thread did, moment by moment: segments that neither overlap nor leave a gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.ranks import Rank
from rankscope.analysis.tables import Rows, Tables, column
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait
from rankscope.records.host import Compile, GcPause
from rankscope.records.loading import BatchWait, LoaderStart
from rankscope.records.training import Backward, Forward, OptimizerStep, Span

Ints = NDArray[np.int64]

OTHER: Final = "other"
DATA: Final = "data"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
COMMUNICATION: Final = "communication"
CHECKPOINT: Final = "checkpoint"
EVALUATION: Final = "evaluation"
LOGGING: Final = "logging"
TRANSFER: Final = "transfer"

SEGMENT: Final = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("phase", "i2"),
        ("kind", "i2"),
        ("row", "i4"),
        ("collective", "i4"),
        ("detail", "i2"),
    ]
)
"""A piece of the training thread's time, `start` to `end` in ns of the node's clock.

`phase`: index into `Timeline.phases`. `kind`: code of the record that covers it; 0: none does (user code between
phases). `row`: index of that record among the rank's records of its kind; -1: none. `collective`: index into the rank's
collectives of the one that this segment waits for; -1: it is work. `detail`: 0, GC, COMPILE or HOOK.
"""
GC: Final = 1
"""A garbage collection inside the phase."""
COMPILE: Final = 2
"""A compilation inside the phase."""
HOOK: Final = 3
"""A communication hook of the user's."""


@dataclass(slots=True)
class Timeline:
    """One rank's segments in time order. `phases[segments["phase"]]` is the phase of each."""

    segments: NDArray[np.void]
    """Rows of SEGMENT."""
    phases: list[str]
    collectives: Rows
    """The rank's collectives on its training thread, in time order."""
    rows: dict[int, Rows]
    """The rank's records on its training thread, by kind."""

    def phase_id(self, name: str) -> int:
        """The index of a phase; a new name is added."""
        if name not in self.phases:
            self.phases.append(name)
        return self.phases.index(name)

    def durations(self) -> Ints:
        """Length of each segment in ns."""
        return np.asarray(self.segments["end"] - self.segments["start"], np.int64)


_KINDS = (
    Forward,
    Backward,
    OptimizerStep,
    Span,
    BatchWait,
    LoaderStart,
    Collective,
    CommunicationWait,
    CommunicationCode,
    GcPause,
    Compile,
)


def build(tables: Tables, rank: Rank) -> Timeline:
    """The timeline of one rank from the records of its training thread."""
    lane = _training_lane(tables, rank)
    rows: dict[int, Rows] = {}
    for kind in _KINDS:
        mine = tables.of(kind)
        rows[kind.code] = mine[(mine["process"] == rank.pid) & (mine["lane"] == lane)]
    phases = [OTHER, DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CHECKPOINT, EVALUATION, LOGGING]
    timeline = Timeline(np.empty(0, SEGMENT), phases, rows[Collective.code], rows)
    spans = _spans(tables, rank, timeline)
    timeline.segments = _flatten(spans)
    return timeline


def _training_lane(tables: Tables, rank: Rank) -> int:
    """The lane of the thread that trains: the one with most optimizer steps, else the first."""
    steps = tables.of(OptimizerStep)
    mine = steps[steps["process"] == rank.pid]
    if not len(mine):
        return 0
    lanes, counts = np.unique(mine["lane"], return_counts=True)
    return int(lanes[np.argmax(counts)])


def evaluation_forwards(rows: Rows) -> NDArray[np.bool_]:
    """Which forwards evaluate: no gradients, eval mode, and a model that elsewhere learns."""
    training = column(rows, Forward, "training") == 1
    grad = column(rows, Forward, "grad") == 1
    model = column(rows, Forward, "model")
    learns = np.unique(model[training & grad])
    with_input = column(rows, Forward, "elements") > 0
    return np.asarray(~training & ~grad & with_input & np.isin(model, learns), bool)


def _spans(tables: Tables, rank: Rank, timeline: Timeline) -> NDArray[np.int64]:
    """One line a span: start, end, phase, kind, row, collective, detail."""
    rows = timeline.rows
    lines: list[NDArray[np.int64]] = []

    def add(kind: int, phase: NDArray[np.int64] | int, detail: int = 0) -> None:
        mine = rows[kind]
        n = len(mine)
        if n:
            start = mine["time_ns"].astype(np.int64)
            columns = [
                start,
                start + mine["duration_ns"],
                np.broadcast_to(phase, n),
                np.full(n, kind),
                np.arange(n),
                np.full(n, -1),
                np.full(n, detail),
            ]
            lines.append(np.stack([np.asarray(c, np.int64) for c in columns], axis=1))

    forwards = rows[Forward.code]
    evaluates = evaluation_forwards(forwards) if len(forwards) else np.empty(0, bool)
    p = timeline.phase_id
    add(Forward.code, np.where(evaluates, p(EVALUATION), p(FORWARD)))
    add(Backward.code, p(BACKWARD))
    add(OptimizerStep.code, p(OPTIMIZER))
    span_names = [tables.name(rank.pid, int(i)) or OTHER for i in rows[Span.code]["name"]]
    add(Span.code, np.array([p(name) for name in span_names], np.int64))
    add(BatchWait.code, p(DATA))
    add(LoaderStart.code, p(DATA))
    in_backward = column(rows[Collective.code], Collective, "in_backward") == 1
    add(Collective.code, np.where(in_backward, p(BACKWARD), p(COMMUNICATION)))
    add(CommunicationWait.code, p(COMMUNICATION))
    add(CommunicationCode.code, p(COMMUNICATION), HOOK)
    add(GcPause.code, -1, GC)
    add(Compile.code, -1, COMPILE)
    _tails(timeline, lines)
    spans = np.concatenate(lines) if lines else np.empty((0, 7), np.int64)
    _mark_waits(timeline, spans)
    _mark_evaluation(timeline, spans)
    return spans


def _tails(timeline: Timeline, lines: list[NDArray[np.int64]]) -> None:
    """DDP waits in C++ at the end of backward: from the last enqueued collective on, it is communication."""
    backwards = timeline.rows[Backward.code]
    last = column(backwards, Backward, "last_enter_ns")
    has = np.flatnonzero(last > 0)
    if not len(has):
        return
    enters = timeline.collectives["time_ns"].astype(np.int64)
    index = np.searchsorted(enters, last[has])
    at = np.minimum(index, len(enters) - 1)
    # Its record may be lost: then it is not known what the wait is for.
    index = np.where(enters[at] == last[has], at, -1) if len(enters) else np.full(len(has), -1)
    ends = (backwards["time_ns"] + backwards["duration_ns"])[has].astype(np.int64)
    start = np.minimum(_after_hook(timeline, last[has]), ends)
    n = len(has)
    phase, kind = np.full(n, timeline.phase_id(COMMUNICATION)), np.full(n, Backward.code)
    columns = [start, ends, phase, kind, has, index, np.zeros(n)]
    lines.append(np.stack([np.asarray(c, np.int64) for c in columns], axis=1))


def _after_hook(timeline: Timeline, times: Ints) -> Ints:
    """Moments moved to the end of the communication hook that they lie in."""
    hooks = timeline.rows[CommunicationCode.code]
    if not len(hooks):
        return times
    starts = hooks["time_ns"].astype(np.int64)
    ends = starts + hooks["duration_ns"].astype(np.int64)
    at = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
    return np.where((starts[at] <= times) & (times < ends[at]), ends[at], times)


def _mark_waits(timeline: Timeline, spans: NDArray[np.int64]) -> None:
    """A blocking wait is for the collective that was entered last before its end."""
    enters = timeline.collectives["time_ns"].astype(np.int64)
    waits = np.flatnonzero(spans[:, 3] == CommunicationWait.code)
    spans[waits, 5] = np.searchsorted(enters, spans[waits, 1], side="left") - 1
    # The call itself may block, too (gloo's barrier, a blocking wait inside the operation).
    calls = np.flatnonzero((spans[:, 3] == Collective.code) & (spans[:, 2] == timeline.phase_id(COMMUNICATION)))
    spans[calls, 5] = spans[calls, 4]


def _mark_evaluation(timeline: Timeline, spans: NDArray[np.int64]) -> None:
    """Batches and loaders that feed evaluation belong to it."""
    evaluation, data = timeline.phase_id(EVALUATION), timeline.phase_id(DATA)
    order = np.argsort(spans[:, 0], kind="stable")
    next_is_evaluation = False
    for index in order[::-1]:
        kind = spans[index, 3]
        if kind == Forward.code:
            next_is_evaluation = spans[index, 2] == evaluation
        elif kind in (Backward.code, OptimizerStep.code):
            next_is_evaluation = False
        elif kind in (BatchWait.code, LoaderStart.code) and next_is_evaluation and spans[index, 2] == data:
            spans[index, 2] = evaluation


def _flatten(spans: NDArray[np.int64]) -> NDArray[np.void]:
    """Segments from nested spans: the innermost span wins, what no span covers is `other`.

    Spans of one thread nest; where clocks of two records touch by a few ns, the inner one is cut at the outer's end.
    """
    if not len(spans):
        return np.empty(0, SEGMENT)
    order = np.lexsort((-spans[:, 1], spans[:, 0]))
    out: list[tuple[int, int, int, int, int, int, int]] = []
    stack: list[tuple[int, int, int, int, int, int]] = []  # end, phase, kind, row, collective, detail
    now = int(spans[order[0], 0])

    def emit(until: int) -> None:
        nonlocal now
        if until <= now:
            return
        if stack:
            _, phase, kind, row, collective, detail = stack[-1]
            out.append((now, until, phase, kind, row, collective, detail))
        else:
            out.append((now, until, 0, 0, -1, -1, 0))
        now = until

    for start, until, own_phase, kind, row, own_collective, detail in spans[order].tolist():
        end, phase, collective = until, own_phase, own_collective
        while stack and stack[-1][0] <= start:
            emit(stack[-1][0])
            stack.pop()
        emit(start)
        if stack:
            end = min(end, stack[-1][0])
            if phase < 0:  # a pause inside a phase keeps the phase
                _, phase, _, _, collective, _ = stack[-1]
        if end > start:
            stack.append((end, max(phase, 0), kind, row, collective, detail))
    while stack:
        emit(stack[-1][0])
        stack.pop()
    return np.array(out, SEGMENT)
