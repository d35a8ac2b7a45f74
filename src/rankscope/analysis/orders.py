"""Orders in which batches come: sorted by length in repeated runs, class by class, or by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
SIGMAS: Final = 6.0
"""Standard deviations by which a figure must exceed that of a random order: by chance once in a billion."""


@dataclass(frozen=True, slots=True)
class Runs:
    """How lengths of batches follow each other."""

    pairs: int
    """Of batches with different lengths that follow each other."""
    same_way: float
    """Share of the pairs that go the way that most go: half where the order is random."""
    falling: bool
    turns: int
    """Pairs that go the other way: where a sorted run ends and the next one begins."""

    @property
    def sorted(self) -> bool:
        """Whether chance does not make such an order."""
        return self.pairs >= FEWEST_PAIRS and self.same_way >= SORTED and self.beyond_chance

    @property
    def beyond_chance(self) -> bool:
        """Of n pairs of a random order the share that rises has the variance 1 / (12 n): neighbours share a batch."""
        return self.same_way - 0.5 > SIGMAS / math.sqrt(12 * max(1, self.pairs))


FEWEST_PAIRS: Final = 16
SORTED: Final = 0.74
"""Of the pairs that go the same way: in runs of four sorted batches three of four do."""


def runs(lengths: Ints) -> Runs:
    """How the lengths of successive batches go up and down; batches of unknown length (0) are left out."""
    change = np.diff(lengths[lengths > 0])
    falls, rises = int((change < 0).sum()), int((change > 0).sum())
    pairs = falls + rises
    most = max(falls, rises)
    return Runs(pairs, most / pairs if pairs else 0.0, falls > rises, pairs - most)


UNMIXED: Final = 0.5
"""Chance of two different labels in one batch, relative to any two labels: below one half, a batch says more about
where in the data it comes from than about the task."""
BETWEEN: Final = 0.8
"""The same for neighbouring batches. Batches that a sampler makes of a few classes each, by chance, have 1."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """How well classes are mixed within batches."""

    batches: int
    within: float
    """Chance that two labels of one batch differ, over the same for two labels of any batches: 1 where mixed by chance,
    0 where each batch has one class."""
    neighbours: float
    """The same of two labels from neighbouring batches: below 1 where classes follow one another in time."""
    noise: float
    """Standard deviation of `within` where the order is random."""

    @property
    def ordered(self) -> bool:
        """Whether classes come one after the other, beyond what chance makes of it."""
        beyond = 1 - self.within > SIGMAS * self.noise
        return self.within < UNMIXED and self.neighbours < BETWEEN and beyond


def mixing(counts: Ints) -> Mixing | None:
    """How the classes of successive batches are mixed, from [k, classes] counts; None where they do not vary."""
    sizes = counts.sum(axis=1)
    counts = counts[sizes >= 2]
    sizes = counts.sum(axis=1).astype(np.float64)
    if len(counts) < 2:
        return None
    shares = counts / sizes[:, None]
    total = counts.sum(axis=0) / counts.sum()
    overall = 1 - float((total**2).sum())
    if overall <= 0:
        return None
    # Two different labels of one batch: without putting the first one back.
    alike = (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))
    within = float((1 - alike).mean()) / overall
    neighbours = float((1 - (shares[1:] * shares[:-1]).sum(axis=1)).mean()) / overall
    # The chance that two labels of n are alike, estimated from n (n - 1) / 2 pairs; see the Gini-Simpson index.
    pairs = float((sizes * (sizes - 1) / 2).mean())
    noise = float(np.sqrt((1 - overall) / overall / (pairs * len(counts)))) if pairs else 1.0
    return Mixing(len(counts), within, neighbours, noise)


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the distribution of classes, once."""

    at: int
    """The first batch behind it."""
    distance: float
    """Share of the labels that would have to be others for both sides to be alike (total variation)."""
    noise: float
    """What this distance is where nothing changes."""


def shift(counts: Ints, fewest: int = 4) -> Shift | None:
    """The batch at which the distribution of classes changes most, with `fewest` batches on each side at least."""
    if len(counts) < 2 * fewest:
        return None
    before = counts.cumsum(axis=0).astype(np.float64)
    total = before[-1]
    best: Shift | None = None
    for at in range(fewest, len(counts) - fewest + 1):
        first, second = before[at - 1], total - before[at - 1]
        n, m = first.sum(), second.sum()
        if not n or not m:
            continue
        distance = float(np.abs(first / n - second / m).sum()) / 2
        p = total / total.sum()
        # Each class's difference is normal with variance p (1 - p) (1/n + 1/m); of its size the mean is 0.8 of that.
        noise = float(np.sqrt(p * (1 - p) * (1 / n + 1 / m)).sum()) * 0.4
        if best is None or distance - noise > best.distance - best.noise:
            best = Shift(at, distance, noise)
    return best
