"""A run of ours as a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.training import Forward, Step
from rankscope.report.report import Report
from rankscope.report.timeline.headline import headline
from rankscope.report.timeline.nesting import drawn
from rankscope.report.timeline.parts import Ints, Part, Process, Readings, Track
from rankscope.report.timeline.run_counters import MARKED, Counted, machine_counters, rank_counters, rank_marks
from rankscope.report.timeline.run_flows import collective_flows
from rankscope.report.timeline.run_lanes import DRAWN, rank_lanes
from rankscope.report.timeline.window import Steps, Window, steps_of


def run_steps(facts: Facts) -> Steps:
    """The steps of a run: where it does not train, its forward calls."""
    by_rank = []
    for position in range(facts.size):
        kind = Forward if facts.inference else Step
        rows = facts.rows(kind, position, window=False)
        if facts.inference:
            rows = rows[column(rows, Forward, "elements") > 0]
        begin = rows["time_ns"].astype(np.int64)
        number = np.arange(len(rows)) if facts.inference else rows["step"].astype(np.int64)
        by_rank.append((number, begin, begin + rows["duration_ns"].astype(np.int64)))
    return steps_of(by_rank)


def whole_run(facts: Facts) -> tuple[int, int] | None:
    """First and last moment of everything that is drawn; None where nothing was recorded."""
    found = [rows for kind in (*DRAWN, *MARKED) if len(rows := facts.tables.of(kind))]
    if not found or not facts.ranks:
        return None
    return (
        min(int(rows["time_ns"].min()) for rows in found),
        max(int((rows["time_ns"] + rows["duration_ns"]).max()) for rows in found),
    )


def run_starts(facts: Facts, chosen: Callable[[int], bool]) -> Ints:
    """When each slice of the chosen ranks begins."""
    ranks = [rank for rank in facts.ranks if chosen(rank.rank)]
    pids = [pid for rank in ranks for pid in (rank.pid, *rank.workers)]
    found = [rows["time_ns"][np.isin(rows["process"], pids)] for rows in map(facts.tables.of, DRAWN)]
    return np.concatenate(found).astype(np.int64)


def run_parts(
    facts: Facts, report: Report, chosen: Callable[[int], bool], steps: Steps, window: Window
) -> Iterator[Part]:
    """Findings and clock, then the chosen ranks one after the other. Times count from the begin of the window, or of
    what reaches into it."""
    whole = whole_run(facts)
    assert whole is not None
    origin = whole[0]
    ids = count(1)
    yield from headline(
        report.findings, report.clock, steps=steps, window=window, origin_ns=origin, ids=ids
    )
    positions = [position for position, rank in enumerate(facts.ranks) if chosen(rank.rank)]
    flows = collective_flows(facts, positions, window)
    for order, position in enumerate(positions, 1):
        head = _head(facts, position, next(ids), order)
        yield head
        below = count()
        for name, batch in rank_lanes(facts, position, window, flows[position]):
            if len(batch):
                track = Track(next(ids), name, head.id, next(below))
                yield from drawn(track, batch.slices(track.id, origin), ids)
        marks = rank_marks(facts, position, window)
        if len(marks):
            track = Track(next(ids), "events", head.id, next(below))
            yield track
            yield marks.marks(track.id, origin)
        counters = Track(next(ids), "counters", head.id, next(below))
        yield from _counters(counters, rank_counters(facts, position, window), ids, origin)
    machine = Track(next(ids), "machine", order=len(positions) + 1)
    yield from _counters(machine, machine_counters(facts, window), ids, origin)


def _head(facts: Facts, position: int, id: int, order: int) -> Track:
    rank = facts.ranks[position]
    # Viewers sort by name, and processes of several nodes may have one number.
    digits = len(str(max(facts.world_size - 1, 0)))
    pids = [one.pid for one in facts.ranks]
    pid = rank.pid if len(set(pids)) == len(pids) else rank.rank + 1
    labels = tuple(label for label in (rank.process.host, rank.process.backend) if label)
    return Track(id, f"rank {rank.rank:0{digits}}", 0, order, Process(pid, labels))


def _counters(head: Track, counted: Iterable[Counted], ids: Iterator[int], origin: int) -> Iterator[Part]:
    """Counters below a track of their own, which is left out where there are none."""
    for order, (name, unit, time, value) in enumerate(counted):
        if not order:
            yield head
        track = Track(next(ids), name, head.id, order, unit=unit)
        yield track
        yield Readings(track.id, time - origin, value)
