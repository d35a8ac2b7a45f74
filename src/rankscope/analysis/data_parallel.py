"""Which ranks should read different data: those whose gradients are averaged, unless they share a model's layers."""

from __future__ import annotations

from typing import Final

import numpy as np

from rankscope.analysis import tensors
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Rows, column
from rankscope.records.collective import Collective
from rankscope.records.training import Forward

WRAPPERS: Final = ("DistributedDataParallel", "FullyShardedDataParallel")
SUMMED: Final = ("allreduce", "all_reduce", "_allreduce", "reduce_scatter", "_reduce_scatter")
MOST_OF_THE_MODEL: Final = 0.5
"""Share of the trained elements that a step's reductions must have to be those of its gradients."""
FIRST_STEPS: Final = 50
"""Steps whose collectives are looked at: a training communicates alike in all of them."""


def must_differ(facts: Facts) -> frozenset[tuple[int, int]]:
    """Pairs of positions that average gradients with each other and compute no part of one forward together."""
    return facts.once(_must_differ)


def _must_differ(facts: Facts) -> frozenset[tuple[int, int]]:
    averaged: set[tuple[int, int]] = set()
    together: set[tuple[int, int]] = set()
    for position in range(facts.size):
        rows = facts.rows(Collective, position, window=False)
        rows = rows[rows["step"] < FIRST_STEPS]
        if not len(rows):
            continue
        names = {int(n): facts.tables.name(facts.ranks[position].pid, int(n)) for n in np.unique(rows["name"])}
        summed = np.array([names[int(n)].startswith(SUMMED) for n in rows["name"]], bool)
        pairs = column(rows, Collective, "point_to_point") == 1
        inside = _in_forward(facts, position, rows)
        together |= _pairs(facts, position, rows[pairs])
        together |= _pairs(facts, position, rows[inside & summed])
        outside = rows[summed & ~inside]
        if _wrapped(facts, position) or _reduces_the_model(facts, position, outside):
            averaged |= _pairs(facts, position, outside)
    return frozenset(averaged - together)


def _wrapped(facts: Facts, position: int) -> bool:
    found = tensors.inventory(facts, position)
    models = found.models if found is not None else ()
    return any(m.wrapper in WRAPPERS or any(x.kind.startswith("FSDP") for x in m.modules) for m in models)


def _reduces_the_model(facts: Facts, position: int, rows: Rows) -> bool:
    """Whether the program itself reduces, in its usual step, most of what it trains."""
    trained = sum(int(np.prod(p.shape)) for _, p in tensors.parameters(facts, position) if p.trainable)
    if not trained or not len(rows):
        return False
    elements = column(rows, Collective, "elements").astype(np.int64)
    by_step = np.bincount(rows["step"].astype(np.int64), weights=elements)
    by_step = by_step[: min(len(by_step), facts.step_count(position))]
    return bool(len(by_step)) and float(np.median(by_step)) >= MOST_OF_THE_MODEL * trained


def _in_forward(facts: Facts, position: int, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    forwards = facts.rows(Forward, position, window=False)
    if not len(forwards):
        return np.zeros(len(rows), bool)
    begins = forwards["time_ns"].astype(np.int64)
    ends = begins + forwards["duration_ns"].astype(np.int64)
    at = np.searchsorted(begins, rows["time_ns"].astype(np.int64), side="right") - 1
    return np.asarray((at >= 0) & (rows["time_ns"] < ends[np.maximum(at, 0)]), bool)


def _pairs(facts: Facts, position: int, rows: Rows) -> set[tuple[int, int]]:
    """(this rank, other) of all groups of these collectives, the smaller position first."""
    found: set[tuple[int, int]] = set()
    for group in np.unique(column(rows, Collective, "group")).tolist():
        text = facts.tables.name(facts.ranks[position].pid, int(group))
        listed = [int(x) for x in text.rpartition("|")[2].split(",") if x.isdigit()] if "|" in text else []
        for other, rank in enumerate(facts.ranks):
            if other != position and (not listed or rank.rank in listed):
                found.add((min(position, other), max(position, other)))
    return found
