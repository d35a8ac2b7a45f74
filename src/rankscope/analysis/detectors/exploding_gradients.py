"""Finds gradients that grow on their way through the network, or from step to step, until the training is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.divergence import BLEW_UP, FORWARD, STEEP, Divergence, divergence, looks
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import Layer, matrices
from rankscope.analysis.wording import location
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import GradientStat, LossValue, WeightStat


class ExplodingGradients(Detector):
    """Gradients are far larger than the network and its loss would have them, and the loss is lost with them.

    ## What it is
    Each layer, or each time step of a recurrent network, multiplies the gradient by more than one. Or one batch
    brings the training to a cliff.

    ## What shows it
    Before the first update: outputs that grow a thousandfold through the network, or a loss that changes forty
    times more than the weights of a layer do. Later: gradients a hundred times larger than they used to be, after
    updates of the usual size. And a loss that goes up and does not come back.

    ## What else looks like it
    A learning rate that is too high: there updates are large first, and gradients follow. Large gradients that the
    program clips do no harm. A loss that is a sum has large gradients, and is as large itself.

    ## What to do
    Clip gradients by their norm; initialise for the depth of the network; normalise; truncate the sequence that is
    backpropagated through.
    """

    name = "exploding-gradients"
    needs = (WeightStat, GradientStat, LossValue)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if looks(facts) is None:
            raise CannotExamine("no layers of weights that are trained")
        found = divergence(facts)
        if found is None or found.cause != "gradients":
            return
        layer, largest = _largest(matrices(facts), found.begin)
        curve = found.curve
        end = "is not a number" if not np.isfinite(curve.end) else f"ends at {curve.end:.3g}"
        yield Finding(
            cause=self.name,
            severity="critical" if found.hopeless else "warning",
            confidence=0.85,
            title=f"{_words(found)}, most in {layer.path}: the loss was {curve.first:.3g} before the first update, "
            f"and {end}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="backward",
            component=layer.path,
            location=location(curve.place),
            first_step=found.begin,
            last_step=int(curve.steps[-1]),
            cost=Cost(None, None, None),
            evidence=tuple(
                Evidence(text, value, unit)
                for text, value, unit in (
                    (f"{layer.path}: gradient per weight at step {found.begin}", largest, "x"),
                    ("change of the loss for one of a layer's weights, both relative, at first", found.steepness, "x"),
                    ("outputs grow through the network, at the first look", found.forward_growth, "x"),
                    ("gradients have grown since the first steps", found.gradient_growth, "x"),
                    ("loss before the first update", curve.first, ""),
                    ("loss at the end", curve.end, ""),
                )
                if np.isfinite(value)
            ),
            next=(
                "clip gradients by their norm (torch.nn.utils.clip_grad_norm_)",
                "initialise for this depth and activation, or normalise between layers",
                "of a recurrent network, backpropagate through fewer steps",
            ),
        )


def _words(found: Divergence) -> str:
    if found.forward_growth >= FORWARD:
        return f"outputs grow {found.forward_growth:.0e} times on their way through the network"
    if found.steepness >= STEEP:
        return f"gradients are {found.steepness:.0e} times what weights and loss would have them"
    return f"gradients become {max(BLEW_UP, found.gradient_growth):.0e} times larger than before"


def _largest(own: tuple[Layer, ...], step: int) -> tuple[Layer, float]:
    """The layer whose weights and gradient have the largest product at a step, and its gradient per weight."""

    def at(layer: Layer) -> tuple[float, float]:
        found = np.flatnonzero(layer.steps == step)
        gradient, size = (float(values[found[0]]) if len(found) else np.nan for values in (layer.raw, layer.size))
        product = layer.numel * gradient * size
        return (product if np.isfinite(product) else -1.0), gradient / max(size, 1e-30)

    layer = max(own, key=lambda one: at(one)[0])
    return layer, at(layer)[1]
