"""Replays the operations of a job with other durations, all steps and replicas at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.optable.graph import Graph
from rankscope.analysis.imported.optable.grid import Block, Floats

Durations = Callable[[int], Floats]
"""Operation -> ns, as [scenario, step, lane] or anything that broadcasts to it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A block with what each operation takes of its own, without waiting for others."""

    block: Block
    graph: Graph
    own: Floats
    """[op, step, lane] ns. What was not recorded has the ideal duration, so that it is nobody's fault."""
    ideal: Floats
    """[op] ns: of its kind, over all ranks and steps."""


def own_durations(block: Block, graph: Graph) -> Floats:
    """[op, step, lane] of a sync or a transfer what is left after the last one has come; NaN: not known."""
    own = block.duration.copy()
    for i in range(len(block.ops)):
        if not (graph.with_[i] or graph.replicas[i]):
            continue
        last = block.start[i]
        for j in graph.with_[i]:
            last = np.maximum(last, block.start[j])  # NaN where the other end was not recorded
        if graph.replicas[i]:
            last = np.broadcast_to(np.fmax.reduce(last, axis=-1, keepdims=True), block.start[i].shape)
        # Clocks of nodes differ a little: a receive may seem to end before its send began.
        own[i] = np.maximum(0.0, block.end[i] - last)
    return own


def replay(graph: Graph, durations: Durations, shape: tuple[int, int, int]) -> Floats:
    """[scenario, step] ns from the start of a step to its last end. `shape`: scenarios, steps, lanes."""
    starts: list[Floats | None] = [None] * len(graph.after)
    ends: list[Floats | None] = [None] * len(graph.after)
    zero = np.zeros((1, 1, 1))
    total = np.zeros(shape[:2])
    for node in graph.order:
        i, is_end = divmod(node, 2)
        if not is_end:
            begin = zero
            for u in graph.after[i]:
                begin = _later(begin, ends[u])
            inside = graph.inside[i]
            if inside is not None:
                started = starts[inside[0]]
                assert started is not None
                begin = np.maximum(begin, started + inside[1] * durations(inside[0]))
            starts[i] = begin
            continue
        last = _later(zero, starts[i])
        for u in graph.with_[i]:
            last = _later(last, starts[u])
        if graph.replicas[i]:
            last = last.max(axis=-1, keepdims=True)
        done = last + durations(i)
        ends[i] = done
        np.maximum(total, done.max(axis=-1), out=total)
    return total


def _later(a: Floats, b: Floats | None) -> Floats:
    assert b is not None  # the order of the graph puts it first
    return np.maximum(a, b)
