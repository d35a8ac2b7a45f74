"""Finds weights in half precision that are too coarse for their updates."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import Ints, Layer, layers, rates
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import GradientStat, WeightStat

DIGITS = {"bfloat16": 7, "float16": 10}
"""Type -> bits of its fraction."""
LOST = 0.2
"""Share of the elements that change at most. What is close to zero moves still, having smaller rounding steps: with
updates of a tenth of half a rounding step, about one element in ten."""
MOST = 0.5
"""Of the elements in half precision that have gradients, the share whose updates are lost where that is the fault."""
FULL_RATE = 0.5
"""Steps at less than this share of the run's highest learning rate are warm-up or decay: their updates may be tiny."""
FEWEST_LOOKS = 3
BY_GRADIENT = ("SGD", "LBFGS", "ASGD")
"""Optimizers whose updates are as large as the gradient; those of others are near the learning rate."""
CAREFUL = ("stochastic", "kahan", "8bit", "4bit", "fp8", "master")
"""Parts of names of optimizers that keep what rounding takes away."""


class UpdateLostToPrecision(Detector):
    """Updates are smaller than the rounding step of the weights: most weights never change.

    ## What it is
    bfloat16 keeps 8 significant bits: a weight of 0.02 moves in steps of 0.0001. An update of less than half of that
    is rounded away, however often it comes.

    ## What shows it
    Of a sample of each weight in bfloat16 or float16, next to no element changes in a step, although the gradient is
    there, the optimizer holds the weight, and the learning rate is at its height.

    ## What else looks like it
    Frozen layers and rows of an embedding that a batch does not use have no gradient. At the start of a warm-up, or
    at the end of a decay, updates are tiny in any precision. Optimizers that round at random or keep the rest
    (Kahan) also move few weights a step, and lose nothing: their names say so.

    ## What to do
    Keep the weights in float32 and compute under `torch.autocast`; or an optimizer with float32 master weights,
    stochastic rounding or Kahan summation; or a higher learning rate.
    """

    name = "update-lost-to-precision"
    needs = (WeightStat, GradientStat)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        coarse = [layer for layer in layers(facts) if layer.parameter.dtype in DIGITS]
        if not coarse:
            return
        kinds = _optimizers(facts)
        if any(word in kind.lower() for word in CAREFUL for kind in kinds):
            raise CannotExamine("the optimizer keeps what rounding takes away, by its name")
        shares = [(layer, steps, share) for layer in coarse for steps, share in _moved(facts, layer)]
        if not shares:
            raise CannotExamine(f"fewer than {FEWEST_LOOKS} looks at weights in half precision with gradients")
        total = sum(layer.numel for layer, _, _ in shares)
        rate = float(rates(facts)[1].max()) if len(rates(facts)[1]) else None
        lost = [
            (layer, steps, share)
            for layer, steps, share in shares
            if share < LOST and _expected(layer, rate, kinds) < _rounding_step(layer)
        ]
        part = sum(layer.numel for layer, _, _ in lost) / total
        if part < MOST:
            return
        lost.sort(key=lambda one: -one[0].numel)
        layer, steps, _ = lost[0]
        moved = float(sum(share * one.numel for one, _, share in lost) / sum(one.numel for one, _, _ in lost))
        ulp = _rounding_step(layer)
        dtype = layer.parameter.dtype
        yield Finding(
            cause=self.name,
            severity="critical" if moved == 0 else "warning",
            confidence=0.9 if moved < LOST / 2 else 0.75,
            title=f"{wording.percent(part)} of the {dtype} weights do not change: their updates are smaller than half "
            f"a rounding step ({layer.path} and {len(lost) - 1} more)",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="optimizer",
            component=layer.path,
            location=None,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("elements that change in a step, of these weights", moved, "share"),
                Evidence(f"{dtype} weights with gradients whose updates are lost", part, "share"),
                Evidence(f"{layer.path}: half a rounding step at the size of its weights", ulp / 2, ""),
                *([Evidence("learning rate at its highest", rate, "")] if rate is not None else []),
            ),
            next=(
                "keep the weights in float32 and compute under torch.autocast(dtype=torch.bfloat16)",
                "or an optimizer that keeps master weights, rounds stochastically or sums with compensation (Kahan)",
                "or a learning rate at which an update is more than half a rounding step",
            ),
        )


def _moved(facts: Facts, layer: Layer) -> Iterator[tuple[Ints, float]]:
    """(steps, mean share of elements with a gradient that change in them) of a layer that can be judged; or nothing."""
    steps, rate = rates(facts)
    good = np.isfinite(layer.changed) & (layer.gradient > 0) & (layer.size > 0) & (layer.gradient_zeros < 1)
    if len(steps):
        at = dict(zip(steps.tolist(), rate.tolist(), strict=True))
        high = FULL_RATE * float(rate.max())
        good &= np.array([at.get(step, 0.0) >= high > 0 for step in layer.steps.tolist()], bool)
    if good.sum() >= FEWEST_LOOKS:
        share = np.minimum(1, layer.changed[good] / (1 - layer.gradient_zeros[good]))
        yield layer.steps[good], float(share.mean())


def _expected(layer: Layer, rate: float | None, kinds: set[str]) -> float:
    """Size of the updates that rate and gradient would make; 0 where it is not known."""
    if rate is None:
        return 0.0
    return rate * float(np.nanmedian(layer.gradient)) if kinds <= set(BY_GRADIENT) else rate


def _rounding_step(layer: Layer) -> float:
    """Distance between neighbours at the size of a layer's weights."""
    size = float(np.median(layer.size[layer.size > 0]))
    step: float = 2.0 ** (math.floor(math.log2(size)) - DIGITS[layer.parameter.dtype])
    return step


def _optimizers(facts: Facts) -> set[str]:
    """Classes of the optimizers of all ranks."""
    newest = [all_of[-1] for r in facts.ranks if (all_of := facts.tables.inventories.get(r.pid))]
    return {optimizer.kind for inventory in newest for optimizer in inventory.optimizers}
