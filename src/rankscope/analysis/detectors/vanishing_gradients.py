"""Finds early layers that the gradient no longer reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import Layer, matrices
from rankscope.analysis.losses import curves
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.activations import ActivationStat
from rankscope.records.numerics import GradientStat, WeightStat

FEWEST_LAYERS = 5
"""Fewer do not multiply to `VANISHED` by slopes below 1: a sigmoid's is a quarter at most, 4 of them are 1/256."""
FEWEST_LOOKS = 3
VANISHED = 1e-4
"""Gradient per weight of the first layers beside that of the last ones; in healthy networks they differ by less than
a hundred."""
IN_ORDER = 0.8
"""Rank correlation of that with depth. A layer that is cut off, or begins at zero, is a step and no slope."""
STUCK = 1e-2
"""The same of the updates: an optimizer that divides by the size of the gradient (Adam) makes up for it, until its
epsilon is larger."""
FELL = 0.5
"""Part of its first value by which the loss fell where the last layers learn well enough by themselves."""
MOVED = 0.1
"""The same from which on the loss moves at all."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How a model's gradient shrinks towards its input."""

    layers: tuple[Layer, ...]
    steps: NDArray[np.int64]
    """Of the looks at which it does."""
    gradient: float
    """First layers beside the last ones: gradient per weight, median of these looks."""
    update: float
    """Update per weight; NaN: not known."""
    reached: int
    """Layers, from the output on, with more than `VANISHED` of the gradient per weight of the last ones."""


class VanishingGradients(Detector):
    """The gradient becomes smaller from layer to layer, and the first layers hardly learn.

    ## What it is
    Each layer multiplies the gradient by its slope. Many slopes below one (saturated sigmoids, small weights without
    normalisation or skip connections) leave nothing for the layers near the input.

    ## What shows it
    Gradient per weight of the first layers, less than a ten-thousandth of that of the last ones, falling layer by
    layer, at every look; and updates of the first layers, or a loss, that do not move.

    ## What else looks like it
    A last layer that begins at zero passes nothing back in the first steps only. Frozen layers and parts that are cut
    off have no gradient at all, but their neighbours have. Branches scaled to nearly nothing (LayerScale) have small
    gradients, the layers before them have not.

    ## What to do
    ReLU or GELU instead of sigmoid and tanh, initialisation for the activation used, normalisation, skip connections.
    """

    name = "vanishing-gradients"
    needs = (GradientStat, WeightStat)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        by_model: dict[str, list[Layer]] = {}
        for layer in matrices(facts):
            by_model.setdefault(layer.model, []).append(layer)
        deep = [own for own in by_model.values() if len(own) >= FEWEST_LAYERS]
        if not deep:
            raise CannotExamine(f"no model with at least {FEWEST_LAYERS} layers of weights that are trained")
        for own in deep:
            slope = _slope(own)
            if slope is not None:
                yield from self._finding(facts, slope)

    def _finding(self, facts: Facts, slope: Slope) -> Iterator[Finding]:
        curve = next(iter(curves(facts)), None)
        fell = (curve.first - curve.end) / abs(curve.first) if curve is not None and curve.first else float("nan")
        stuck = slope.update < STUCK
        if not stuck and not fell < MOVED:
            return  # the optimizer makes up for it
        first, last = slope.layers[0], slope.layers[-1]
        saturated = _saturated(facts, first)
        weak = len(slope.layers) - slope.reached
        yield Finding(
            cause=self.name,
            severity="info" if fell > FELL else "warning",
            confidence=0.9 if stuck else 0.7,
            title=f"the gradient does not reach the first {weak} of {len(slope.layers)} layers: per weight, "
            f"{first.path} gets {slope.gradient:.0e} of what {last.path} gets",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="backward",
            component=first.path,
            location=None,
            first_step=int(slope.steps[0]),
            last_step=int(slope.steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("gradient per weight, first layers beside the last ones", slope.gradient, "x"),
                *([Evidence("update per weight, the same", slope.update, "x")] if np.isfinite(slope.update) else []),
                *([Evidence("elements of sigmoids and tanhs at their ends, median", saturated, "share")]
                  if saturated is not None else []),
                *([Evidence("the loss has fallen by, of its first value", fell, "share")] if np.isfinite(fell) else []),
            ),
            next=(
                "use activations that do not saturate (ReLU, GELU), and an initialisation made for them",
                "normalise between layers, or add skip connections",
            ),
        )  # fmt: skip


def _slope(own: Sequence[Layer]) -> Slope | None:
    """Of the layers of one model from input to output; None where the gradient reaches all of them."""
    steps = own[0].steps
    for layer in own[1:]:
        steps = np.intersect1d(steps, layer.steps)
    rows = [np.isin(layer.steps, steps) for layer in own]
    with np.errstate(divide="ignore", invalid="ignore"):
        gradient = np.array([layer.raw[r] / layer.size[r] for layer, r in zip(own, rows, strict=True)])
        update = np.array([layer.update[r] / layer.size[r] for layer, r in zip(own, rows, strict=True)])
    known = np.isfinite(gradient).all(axis=0) & (gradient[-1] > 0)
    if known.sum() < FEWEST_LOOKS:
        return None
    part = max(1, len(own) // 3)
    ratio = np.median(gradient[:part], axis=0)[known] / np.median(gradient[-part:], axis=0)[known]
    low = ratio < VANISHED
    # A last layer that began near zero passes little back at first; what vanishes does so until the end.
    if not low[-FEWEST_LOOKS:].all():
        return None
    steps, gradient, update = steps[known][low], gradient[:, known][:, low], update[:, known][:, low]
    by_layer = np.median(gradient, axis=1)
    alive = np.flatnonzero(by_layer > 0)
    # Zero may only be the end of the slope: where the numbers are too small for their format.
    if len(alive) < FEWEST_LAYERS or (by_layer[alive[0] :] == 0).any():
        return None
    values = by_layer[alive]
    if _rank_correlation(values) < IN_ORDER or values[0] > VANISHED * np.median(values[-part:]):
        return None
    end = float(np.median(by_layer[-part:]))
    moved = np.median(update, axis=1) if np.isfinite(update).all() else np.full(len(own), np.nan)
    late = float(np.median(moved[-part:]))
    return Slope(
        layers=tuple(own),
        steps=steps,
        gradient=float(np.median(by_layer[:part])) / end,
        update=float(np.median(moved[:part])) / late if late > 0 else float("nan"),
        reached=int((by_layer > VANISHED * end).sum()),
    )


def _rank_correlation(values: NDArray[np.float64]) -> float:
    """Of the values with their places."""
    ranks = np.argsort(np.argsort(values))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def _saturated(facts: Facts, layer: Layer) -> float | None:
    """Median share of saturated elements of the model's sigmoids and tanhs; None where it calls none."""
    rows = facts.rows(ActivationStat, layer.position, window=False)
    rows = rows[column(rows, ActivationStat, "bounded") > 0]
    return float(np.median(column(rows, ActivationStat, "saturated"))) / 255 if len(rows) else None
