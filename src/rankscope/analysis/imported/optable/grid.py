"""Operations as blocks of numbers: the same operation of all steps and replicas side by side.

Steps and replicas of one job do the same operations in the same order, so one dependency graph serves all of them,
and a replay computes them together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.optable.digest import TableDigest
from rankscope.analysis.imported.optable.kinds import Kind, kind
from rankscope.analysis.imported.optable.layout import Layout

Floats = NDArray[np.float64]

MOST_SHAPES = 8
"""Of steps, by their numbers of operations; a job with dynamic batches has a few."""
FEW = 0.1
"""Share of the steps below which a shape of its own with one step is a cut or disturbed step."""


@dataclass(frozen=True, slots=True)
class Op:
    """An operation that every replica does in every step."""

    stage: int
    kind: int
    """Number of `Block.kinds`."""
    order: int
    """Among those of its kind on its stage."""
    chunk: int
    """-1: of none."""


@dataclass(frozen=True, slots=True)
class Block:
    """All steps of one shape. [op, step, lane], NaN where an operation was not recorded."""

    kinds: tuple[Kind, ...]
    ops: tuple[Op, ...]
    steps: NDArray[np.int64]
    start: Floats
    """ns since the step's first operation began."""
    duration: Floats
    micro_batch: NDArray[np.int32]
    """[op, step, lane]; -1: not written."""

    @property
    def end(self) -> Floats:
        return self.start + self.duration

    def kind_of(self, op: int) -> Kind:
        return self.kinds[self.ops[op].kind]


def blocks(d: TableDigest, where: Layout) -> tuple[list[Block], int]:
    """(the blocks, that of most steps first; number of steps that fit into none)."""
    steps, step = np.unique(d.steps, return_inverse=True)
    rank = np.searchsorted(where.ranks, d.ranks)
    lane, stage = where.lane[rank], where.stage[rank]
    num_kinds, num_places = len(d.names), where.num_stages * len(d.names)
    place = stage * num_kinds + d.kinds
    order = _orders(d, step, rank)
    counts = np.zeros((len(steps), where.num_lanes, num_places), np.int32)
    np.add.at(counts, (step, lane, place), 1)
    usual = _usual_counts(counts)
    shapes, shape = np.unique(usual, axis=0, return_inverse=True)
    shape = shape.reshape(-1)
    sizes = np.bincount(shape)
    first = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(first, step, d.start_ns)
    kinds = tuple(kind(name) for name in d.names)
    found: list[Block] = []
    left = 0
    for number in np.argsort(-sizes, kind="stable").tolist():
        of_shape = np.flatnonzero(shape == number)
        if found and (len(found) == MOST_SHAPES or (len(of_shape) == 1 and len(of_shape) < FEW * len(steps))):
            left += len(of_shape)
            continue
        offset = np.concatenate(([0], np.cumsum(shapes[number])))
        at = np.full(len(steps), -1)
        at[of_shape] = np.arange(len(of_shape))
        rows = np.flatnonzero((at[step] >= 0) & (order < shapes[number][place]))
        op = offset[place[rows]] + order[rows]
        size = (int(offset[-1]), len(of_shape), where.num_lanes)
        cell = (op, at[step[rows]], lane[rows])
        start, duration = np.full(size, np.nan), np.full(size, np.nan)
        start[cell] = d.start_ns[rows] - first[step[rows]]
        duration[cell] = d.duration_ns[rows]
        micro_batch = np.full(size, -1, np.int32)
        micro_batch[cell] = d.micro_batches[rows]
        chunk = np.full(size[0], -1)
        np.maximum.at(chunk, op, d.chunks[rows])
        ops = tuple(
            Op(p // num_kinds, p % num_kinds, i, int(chunk[offset[p] + i]))
            for p in range(num_places)
            for i in range(int(shapes[number][p]))
        )
        found.append(Block(kinds, ops, steps[of_shape], start, duration, micro_batch))
    return found, left


def _orders(d: TableDigest, step: NDArray[np.intp], rank: NDArray[np.intp]) -> NDArray[np.int64]:
    """[row] which of its kind in its step on its rank: as written where that counts each once, else by time."""
    group = (step * (int(rank.max()) + 1) + rank) * (int(d.kinds.max()) + 1) + d.kinds
    begins = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    sizes = np.diff(np.concatenate((begins, [len(group)])))
    by_time = np.arange(len(group)) - np.repeat(begins, sizes)
    if (d.orders < 0).any() or int(d.orders.max()) >= 2 * int(sizes.max()):
        return by_time
    pairs = np.unique(group.astype(np.int64) * (int(d.orders.max()) + 1) + d.orders)
    return d.orders.astype(np.int64) if len(pairs) == len(group) else by_time


def _usual_counts(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """[step, place] how many operations most lanes have there; lanes that have none at all do not count."""
    present = counts > 0
    lanes = present.sum(axis=1)
    ordered = np.sort(counts, axis=1)
    # The lower median of those that have any: a lane that lost or repeated rows is filled or cut to it.
    middle = counts.shape[1] - lanes + (lanes - 1) // 2
    usual = np.take_along_axis(ordered, np.minimum(middle, counts.shape[1] - 1)[:, None, :], axis=1)[:, 0, :]
    return np.where(lanes > 0, usual, 0).astype(np.int64)


def mean_there(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """The mean of what is there; NaN where nothing is."""
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(1, count), np.nan)
