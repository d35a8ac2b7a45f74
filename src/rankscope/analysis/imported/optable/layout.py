"""Where each rank stands in the job: which replica of the model, which stage of the pipeline."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.optable.digest import TableDigest
from rankscope.analysis.imported.optable.kinds import FORWARD, RECEIVE, SEND, Kind, kind

STEPS_TO_COMPARE = 4
"""From which the neighbours of a rank are found: both ends of a transfer end together, each time anew."""


class Unplaceable(Exception):
    """The table does not say where its ranks stand, or too many are missing; the text says what."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A grid of ranks: lanes (replicas; with tensor parallelism each of its members that was recorded) by stages."""

    ranks: NDArray[np.int64]
    """All ranks of the table, ascending."""
    lane: NDArray[np.int64]
    """[rank]"""
    stage: NDArray[np.int64]
    """[rank] counted from 0 without gaps."""
    stage_names: tuple[int, ...]
    """[stage] as the table numbers it."""
    num_lanes: int

    @property
    def num_stages(self) -> int:
        return len(self.stage_names)

    def at(self, lane: int, stage: int) -> int | None:
        """The rank that stands there; None where none was recorded."""
        found = np.flatnonzero((self.lane == lane) & (self.stage == stage))
        return int(self.ranks[found[0]]) if len(found) else None

    def of_stage(self, stage: int) -> tuple[int, ...]:
        return tuple(int(rank) for rank in self.ranks[self.stage == stage])


def layout(d: TableDigest) -> Layout:
    """Raises `Unplaceable`."""
    ranks, at = np.unique(d.ranks, return_inverse=True)
    stages, replicas = _usual(d.stages, at, len(ranks)), _usual(d.replicas, at, len(ranks))
    kinds = [kind(name) for name in d.names]
    transfers = any(k.roles for k in kinds)
    if (stages < 0).any():
        stages = _stages_by_transfers(d, ranks, at, kinds) if transfers else np.zeros(len(ranks), np.int64)
    names = np.unique(stages)
    if transfers and len(names) > 1 and len(names) != names[-1] - names[0] + 1:
        gone = sorted(set(range(int(names[0]), int(names[-1]) + 1)) - set(names.tolist()))
        raise Unplaceable(f"no rank of stage {gone[0]} is in the table: what its neighbours wait for is not known")
    lanes: dict[tuple[int, int], int] = {}
    lane = np.zeros(len(ranks), np.int64)
    seen: dict[tuple[int, int], int] = defaultdict(int)
    counted: dict[int, int] = defaultdict(int)
    for i in range(len(ranks)):
        replica, stage = int(replicas[i]), int(stages[i])
        if replica < 0:
            replica = counted[stage]
            counted[stage] += 1
        member = seen[replica, stage]
        seen[replica, stage] += 1
        lane[i] = lanes.setdefault((replica, member), len(lanes))
    # Lanes are numbered by replica, whatever rank came first.
    order = {old: new for new, (_, old) in enumerate(sorted(lanes.items()))}
    lane = np.array([order[int(x)] for x in lane])
    return Layout(ranks.astype(np.int64), lane, np.searchsorted(names, stages), tuple(names.tolist()), len(lanes))


def _usual(values: NDArray[np.int32], at: NDArray[np.intp], count: int) -> NDArray[np.int64]:
    """[rank] the value of most of its rows; -1 where no row has one. A rank does not move, so a few rows are enough."""
    out = np.full(count, -1, np.int64)
    good = values >= 0
    where, rows = at[good], values[good].astype(np.int64)
    if len(rows):
        order = np.lexsort((rows, where))
        where, rows = where[order], rows[order]
        present, first, counts = np.unique(where, return_index=True, return_counts=True)
        out[present] = rows[first + counts // 2]
    return out


def _stages_by_transfers(
    d: TableDigest, ranks: NDArray[np.int32], at: NDArray[np.intp], kinds: list[Kind]
) -> NDArray[np.int64]:
    """[rank] from who sends to whom: a send and its receive end at the same time."""
    few = np.isin(d.steps, np.unique(d.steps)[:STEPS_TO_COMPARE])
    ends: dict[str, dict[int, NDArray[np.int64]]] = {SEND: {}, RECEIVE: {}}
    for number, k in enumerate(kinds):
        if len(k.roles) != 1 or k.roles[0][0] != FORWARD:
            continue
        for i in range(len(ranks)):
            mine = few & (d.kinds == number) & (at == i)
            if mine.any():
                ends[k.roles[0][1]][i] = np.sort(d.start_ns[mine] + d.duration_ns[mine])
    firsts = [i for i in range(len(ranks)) if i not in ends[RECEIVE]]
    after: dict[int, int] = {}
    free = set(ends[RECEIVE])
    for i, sent in ends[SEND].items():
        near = {j: _apart(sent, ends[RECEIVE][j]) for j in free if j != i}
        best = min(near, key=lambda j: near[j], default=None)
        if best is not None and np.isfinite(near[best]):
            after[i] = best
            free.discard(best)
    stages = np.full(len(ranks), -1, np.int64)
    for i in firsts:
        at_stage, here = 0, i
        while True:
            stages[here] = at_stage
            if here not in after or stages[after[here]] >= 0:
                break
            here, at_stage = after[here], at_stage + 1
    if not firsts or (stages < 0).any():
        raise Unplaceable("there is no column `stage`, and sends and receives do not tell who is next to whom")
    return stages


def _apart(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    return float(np.median(np.abs(a - b))) if len(a) == len(b) else float("inf")
