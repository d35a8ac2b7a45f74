"""Which process is which rank, and which workers belong to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.tables import Tables
from rankscope.records.process import Process
from rankscope.records.training import Forward, Step


@dataclass(frozen=True, slots=True)
class Rank:
    """One training process and its loader workers."""

    rank: int
    pid: int
    process: Process
    workers: tuple[int, ...] = ()
    """pids of all loader workers it ever had."""


def find_ranks(tables: Tables) -> tuple[Rank, ...]:
    """The process that trained, for each rank: of several with one rank number, the one with the most steps."""
    steps = _counts(tables, Step)
    forwards = _counts(tables, Forward)
    best: dict[int, Process] = {}
    # What only started ranks (`mp.spawn`) is none, though it may have told of their end.
    parents = {process.parent for process in tables.processes.values() if process.role == "rank"}
    for pid, process in tables.processes.items():
        if process.role != "rank" or (pid in parents and not steps.get(pid)):
            continue
        work = (steps.get(pid, 0), forwards.get(pid, 0))
        other = best.get(process.rank)
        if other is None or work > (steps.get(other.pid, 0), forwards.get(other.pid, 0)):
            best[process.rank] = process
    if any(steps.get(p.pid) for p in best.values()):
        best = {rank: p for rank, p in best.items() if steps.get(p.pid) or p.world_size > 1}
    if not best:
        # A launcher that failed before it started any.
        best = dict(enumerate([p for p in tables.processes.values() if p.role == "launcher"][:1]))
    workers: dict[int, list[int]] = {}
    for pid, process in tables.processes.items():
        if process.role == "loader-worker":
            workers.setdefault(process.parent, []).append(pid)
    return tuple(
        Rank(rank, process.pid, process, tuple(sorted(workers.get(process.pid, ()))))
        for rank, process in sorted(best.items())
    )


def _counts(tables: Tables, kind: type[Step] | type[Forward]) -> dict[int, int]:
    pids, counts = np.unique(tables.of(kind)["process"], return_counts=True)
    return dict(zip(pids.tolist(), counts.tolist(), strict=True))
