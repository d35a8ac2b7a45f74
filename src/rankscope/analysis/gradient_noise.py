"""The gradient noise scale: the batch size beyond which larger batches hardly help (McCandlish et al., 2018).

With the mean squares of gradients of two batch sizes, b on one rank and B on all, the squared size of the true gradient
is (B |G_B|^2 - b |G_b|^2) / (B - b), and the noise of one sample (|G_b|^2 - |G_B|^2) / (1/b - 1/B); their ratio is the
scale. Both are averaged over steps before they are divided. A few steps know the first of them badly: it is a small
difference of large numbers. Where it is not far above its own error, only a lower bound of the scale is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import training_passes
from rankscope.analysis.tables import column
from rankscope.records.numerics import GradientNoise

FEWEST: Final = 5
"""Sampled steps after the first ones: fewer say nothing of an average."""
SURE: Final = 2.0
"""Standard errors that the squared gradient must stand above zero for its ratio to be given."""
FIRST: Final = 4
"""Steps whose gradients are those of random weights."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a training's gradients, over its sampled steps."""

    scale: float | None
    """In samples; None: so few steps only tell `at_least`."""
    at_least: float
    """The scale is not below this, with a confidence of about 98 %."""
    batch: int
    """Samples that an optimizer step averages over, on all ranks."""
    steps: int
    """That were averaged."""


def gradient_noise(facts: Facts) -> Noise | None:
    """None where it cannot be told: one rank, another way of reduction, batches of unknown or uneven size."""
    return facts.once(_gradient_noise)


def _gradient_noise(facts: Facts) -> Noise | None:
    size = facts.size
    if size < 2 or size != facts.world_size:
        return None
    per_rank = _samples(facts)
    if per_rank is None:
        return None
    steps, local, averaged = _common(facts)
    later = steps >= FIRST
    if later.sum() < FEWEST:
        return None
    # DDP divides by the number of ranks before it adds.
    found = noise_scale(local[later] * size**2, averaged[later], per_rank, per_rank * size)
    return Noise(*found, per_rank * size, int(later.sum())) if found is not None else None


def noise_scale(
    small: Floats, large: Floats, samples: int, all_samples: int
) -> tuple[float | None, float] | None:
    """(scale or None, lower bound of it) in samples, from mean squares of gradients over `samples` and over
    `all_samples`, one each step.

    None where there is no noise to speak of, or a value is not finite.
    """
    true = (all_samples * large - samples * small) / (all_samples - samples)
    noise = float(((small - large) / (1 / samples - 1 / all_samples)).mean())
    middle, error = float(true.mean()), float(true.std(ddof=1)) / len(true) ** 0.5
    if not np.isfinite((middle, error, noise)).all() or noise <= 0:
        return None
    highest = middle + SURE * error
    if highest <= 0:
        return None
    return (noise / middle if middle > SURE * error else None), noise / highest


def _common(facts: Facts) -> tuple[NDArray[np.int64], Floats, Floats]:
    """(steps, mean over ranks of the local mean squares, the averaged one), at steps that all ranks have."""
    by_rank: list[dict[int, tuple[float, float]]] = []
    for position in range(facts.size):
        rows = facts.rows(GradientNoise, position, window=False)
        values = zip(column(rows, GradientNoise, "local"), column(rows, GradientNoise, "averaged"), strict=True)
        by_rank.append(dict(zip(rows["step"].tolist(), values, strict=True)))  # the last of a step: that which reduced
    common = sorted(set.intersection(*(set(one) for one in by_rank)))
    local = np.array([[one[step][0] for one in by_rank] for step in common], float).reshape(-1, facts.size)
    averaged = np.array([by_rank[0][step][1] for step in common], float)
    return np.array(common, np.int64), local.mean(axis=1), averaged


def _samples(facts: Facts) -> int | None:
    """Samples that one rank reads for an optimizer step; None where that is not known, or differs between ranks."""
    found = set()
    for position in range(facts.size):
        per_step: dict[int, int] = {}
        for one in training_passes(facts, position):
            for step, samples in zip(one.steps.tolist(), one.of("samples").tolist(), strict=True):
                per_step[step] = per_step.get(step, 0) + samples
        counts = sorted(per_step.values())
        if not counts or not counts[len(counts) // 2]:
            return None
        found.add(counts[len(counts) // 2])
    return found.pop() if len(found) == 1 else None
