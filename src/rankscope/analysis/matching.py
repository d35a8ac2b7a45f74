"""The same collective on all its ranks: who came when."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.tables import Tables, column
from rankscope.analysis.timeline import Timeline
from rankscope.records.collective import Collective


@dataclass(frozen=True, slots=True)
class Matches:
    """For each rank and each of its collectives: the last rank to enter it, and when."""

    last_rank: tuple[NDArray[np.int64], ...]
    """Position of the rank (not its number) in the list of timelines; -1 where nobody else was seen in it."""
    last_enter: tuple[NDArray[np.int64], ...]
    """When that rank entered it, in ns."""
    ids: tuple[NDArray[np.int64], ...]
    """The same number for the same collective on every rank."""
    members: NDArray[np.int64]
    """id -> number of ranks seen in it."""


def match(tables: Tables, timelines: Sequence[Timeline], pids: Sequence[int]) -> Matches:
    """Match by group name and sequence number; a group's name is the same on all ranks."""
    group_ids: dict[str, int] = {}
    keys = []
    for timeline, pid in zip(timelines, pids, strict=True):
        rows = timeline.collectives
        groups = column(rows, Collective, "group")
        of = {g: group_ids.setdefault(tables.name(pid, g), len(group_ids)) for g in np.unique(groups).tolist()}
        numbers = np.array([of[g] for g in groups.tolist()], np.int64)
        keys.append(numbers << 48 | column(rows, Collective, "sequence"))
    everything = np.concatenate(keys) if keys else np.empty(0, np.int64)
    unique, inverse = np.unique(everything, return_inverse=True)
    owner = np.concatenate([np.full(len(k), i) for i, k in enumerate(keys)]) if keys else np.empty(0, np.int64)
    enter = np.concatenate([t.collectives["time_ns"].astype(np.int64) for t in timelines]) if keys else owner
    last = np.full(len(unique), np.iinfo(np.int64).min)
    np.maximum.at(last, inverse, enter)
    last_owner = np.full(len(unique), -1)
    is_last = enter == last[inverse]
    last_owner[inverse[is_last]] = owner[is_last]
    members = np.bincount(inverse, minlength=len(unique)) if len(everything) else np.empty(0, np.int64)
    last_owner[members < 2] = -1
    cuts = np.cumsum([0, *(len(k) for k in keys)])
    parts = [inverse[a:b] for a, b in itertools.pairwise(cuts)]
    return Matches(
        tuple(last_owner[p] for p in parts),
        tuple(last[p] for p in parts),
        tuple(p.astype(np.int64) for p in parts),
        members.astype(np.int64),
    )
