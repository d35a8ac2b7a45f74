"""Which rank the others wait for, in which phase, and how steadily."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import timeline
from rankscope.analysis.facts import Facts, Floats
from rankscope.analysis.tables import column
from rankscope.records.training import Forward

COMPUTE = (timeline.FORWARD, timeline.BACKWARD, timeline.OPTIMIZER)
"""Phases in which the device, or the CPU in its place, does the model's arithmetic."""
MORE_WORK = 0.02
"""Difference in input elements between ranks that counts; equal batches are equal to the element."""
SHORTEST_PHASE_NS = 50_000
"""Below this a phase is call overhead, not kernels."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """The compute time (forward, backward, optimizer) of each rank in each step, pauses and waits left out."""

    compute: Floats
    """[rank position, step] in ns."""

    @property
    def excess(self) -> Floats:
        """Of each rank over the median of the others, [position, step] in ns."""
        out = np.empty_like(self.compute)
        for p in range(len(self.compute)):
            out[p] = self.compute[p] - np.median(np.delete(self.compute, p, axis=0), axis=0)
        return out

    def steady(self, position: int) -> float:
        """Share of the steps in which a rank computed longer than the median of the others."""
        return float((self.excess[position] > 0).mean())


def lateness(facts: Facts) -> Lateness:
    """Compute times of a run with at least two ranks."""
    return facts.once(_lateness)


def _lateness(facts: Facts) -> Lateness:
    rows = []
    for p in range(facts.size):
        mask = facts.work(p) & np.isin(facts.phases(p), COMPUTE) & (facts.timelines[p].segments["detail"] == 0)
        rows.append(facts.per_step(p, mask))
    return Lateness(np.array(rows))


def ratio_by_phase(facts: Facts, position: int) -> dict[str, float]:
    """For each compute phase the rank's median time per step over the median of the others; short ones left out."""
    ratios = {}
    for phase in COMPUTE:
        times = [_per_step(facts, p, phase) for p in range(facts.size)]
        others = np.median([np.median(t) for p, t in enumerate(times) if p != position])
        if others > SHORTEST_PHASE_NS:
            ratios[phase] = float(np.median(times[position]) / others)
    return ratios


def _per_step(facts: Facts, position: int, phase: str) -> NDArray[np.float64]:
    mask = facts.work(position, phase) & (facts.timelines[position].segments["detail"] == 0)
    return facts.per_step(position, mask)


def elements_per_step(facts: Facts, position: int) -> Floats:
    """Elements of the inputs of all training forwards of a rank in each step."""
    rows = facts.rows(Forward, position)
    grad = (column(rows, Forward, "grad") == 1) & (column(rows, Forward, "training") == 1)
    rows = rows[grad]
    # By the rank's own steps: a fast rank may be one step ahead of the slowest one's window.
    steps = rows["step"].astype(np.int64) - int(facts.steps[0])
    good = (steps >= 0) & (steps < len(facts.steps))
    return np.bincount(steps[good], rows["a"][good].astype(float), minlength=len(facts.steps))[
        : len(facts.steps)
    ].astype(np.float64)
