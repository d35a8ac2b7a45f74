"""Trainings whose loss goes up and stays up: whether the steps were too large, or the gradients exploded before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import Layer, matrices, rates
from rankscope.analysis.losses import Curve, curves, not_made_to_fall, running_median
from rankscope.analysis.tables import column
from rankscope.records.activations import ActivationStat, PredictionStat

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGE_UPDATE = 0.1
"""Update per weight of a step, median of the layers, from which on ten steps replace the weights; a healthy training
stays near a thousandth, and comes to this only in the first steps of small toys."""
RISEN = 1.5
"""The loss has gone up where it is so many times what it had come down to."""
NOT_IMPROVED = 0.75
"""The level at the end, as a part of the loss before any update, from which on nothing was learned: dead networks
fall back to a constant prediction, which is a little better than random weights."""
CONSTANT = 1e-3
"""Deviation of the predictions over a batch, beside their size, below which a network predicts one thing."""
GREW = 2.0
"""Gradients have risen with the loss where they are so many times what they were at first."""
BLEW_UP = 100.0
"""The same where updates had been small: no data make the gradients of a sane network vary so much."""
FORWARD = 1e3
"""Growth of the outputs from the first to the largest layer at which the network is not initialised for its depth."""
STEEP = 40.0
"""Relative change of the loss for a relative change of one layer's weights, before any update: a dozen at most, in
networks that keep their signals in size; far more where the gradient grows on its way (a recurrent network)."""
ROSE = 3.0
"""Times by which a learning rate rises that goes through a warm-up or a jump, to be held against what follows."""
RISING = 10
"""Steps before the loss went up within which the rate must have been that high."""
GUARD = 5.0
"""Standard deviations of the loss's noise that a rise must stand above."""
FEWEST_STEPS = 6
FIRST_STEPS = 20
"""Steps that count as the start."""


Cause = Literal["learning-rate", "gradients", "unknown"]


@dataclass(frozen=True, slots=True)
class Looks:
    """The layers of weights together, at the sampled steps that they have in common."""

    steps: Ints
    update: Floats
    """[k] update per weight, median of the layers; NaN: not known."""
    gradient: Floats
    """[k] L2 norm of the gradients of all of them, as backward left them."""
    force: Floats
    """[k] the largest product of a layer's norm and that of its gradient, as the optimizer got it: change of the loss
    for a relative change of the layer."""
    worst: tuple[str, float]
    """The layer with the largest update per weight among the first large ones, and that."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A loss that went up and did not come back."""

    cause: Cause
    curve: Curve
    looks: Looks
    step: int
    """At which the loss had gone up."""
    begin: int
    """First step that shows the cause: a large update, or an exploding gradient."""
    peak: float
    """Highest level of the loss; infinite where it was not finite from then on."""
    gradient_growth: float
    """Of the gradients, since the first look, at most."""
    steepness: float
    """Of the loss at the first look; see `STEEP`."""
    forward_growth: float
    """Of the outputs over the depth of the network, at the first look; NaN: not known."""

    @property
    def hopeless(self) -> bool:
        """Whether the training is worse off than before its first step, or has lost its numbers."""
        return not np.isfinite(self.curve.end) or self.curve.end >= 2 * self.curve.first


def divergence(facts: Facts) -> Divergence | None:
    """What the run's loss did, where it went up for good; None where it did not."""
    return facts.once(_divergence)


def looks(facts: Facts) -> Looks | None:
    """None where there are no layers of weights with statistics."""
    return facts.once(_looks)


def _divergence(facts: Facts) -> Divergence | None:
    curve = next(iter(curves(facts)), None)
    if curve is None or len(curve.steps) < FEWEST_STEPS or not curve.first > 0:
        return None
    seen = looks(facts)
    if seen is None:
        return None
    # As the optimizer got it: what the program clips does no harm, and a GradScaler's scale is in neither.
    steepness = float(seen.force[0] / curve.first)
    forward = _forward_growth(facts)
    born_so = forward >= FORWARD and steepness >= STEEP
    step = _lost_at(facts, curve)
    if step is None:
        if not born_so:
            return None
        step = int(curve.steps[0])
    start = seen.gradient[np.isfinite(seen.gradient) & (seen.gradient > 0)]
    first_gradient = float(start[0]) if len(start) else float("nan")
    cause: Cause = "unknown"
    begin = step
    large = _large_updates(seen, step)
    growth = _growth(seen, first_gradient, int(seen.steps[large[0]]) if len(large) else 0)
    if steepness >= STEEP or forward >= FORWARD:
        cause, begin = "gradients", int(seen.steps[0])
    elif len(large) and (growth >= GREW or not np.isfinite(curve.end)):
        cause, begin = "learning-rate", int(seen.steps[large[0]])
    elif not len(large):
        rose = _rate_rose(facts, step)
        usual = _usual_before(seen, step)
        shown = np.flatnonzero(seen.steps <= _look_after(seen.steps, step))
        high = shown[seen.gradient[shown] >= BLEW_UP * usual]
        if rose is not None:
            # A rate that was high for a moment has done its harm, and is not what keeps the loss up.
            lasted = rate_at(facts, min(step + RISING, int(curve.steps[-1]))) or 0.0
            if lasted >= ROSE * (lowest_rate_before(facts, step) or 0.0):
                cause, begin = "learning-rate", rose
        elif len(high):
            cause, begin = "gradients", min(step, int(seen.steps[high[0]]))
            growth = float(np.nanmax(seen.gradient[high])) / usual
        elif len(shown) and seen.update[shown[-1]] >= LARGE_UPDATE:
            cause = "learning-rate"
    peak = float(np.nanmax(curve.smooth)) if np.isfinite(curve.end) else float("inf")
    return Divergence(cause, curve, seen, step, begin, peak, growth, steepness, forward)


def _lost_at(facts: Facts, curve: Curve) -> int | None:
    """The step at which the loss had gone up, where it did so for good; None where it did not, or need not fall."""
    rise = _gone_up(curve)
    if rise is None or curve.end < NOT_IMPROVED * curve.first:
        return None
    step, before = rise
    if curve.end < before and not _predicts_one_thing(facts):
        return None  # it came back, and goes on: labels full of noise leave a loss near the first one
    # Losses that need not fall are only told of where their numbers are lost, after a rise of which there is no doubt.
    if not_made_to_fall(facts) is not None and (np.isfinite(curve.end) or not _rose_far(curve)):
        return None
    return step


def _predicts_one_thing(facts: Facts) -> bool:
    """Whether the last predictions in training that were looked at did not depend on the inputs."""
    rows = facts.rows(PredictionStat, 0, window=False)
    rows = rows[(column(rows, PredictionStat, "training") > 0) & (column(rows, PredictionStat, "finite") > 0)]
    return bool(len(rows)) and float(column(rows[-1:], PredictionStat, "spread")[0]) < CONSTANT


def _gone_up(curve: Curve) -> tuple[int, float] | None:
    """(the first step at which the loss stands far above what it had come down to, and at what it was at first; what it
    had come down to).

    At the start a single step counts: a network can be dead after it, and predict one thing from then on.
    """
    level = np.where(curve.steps < FIRST_STEPS, curve.values, running_median(curve.values, 3))
    guard = GUARD * _early_noise(curve)
    lowest = curve.first
    for step, value, finite in zip(curve.steps.tolist(), level.tolist(), curve.finite.tolist(), strict=True):
        if not np.isfinite(value):
            if not finite and not np.isfinite(curve.end):
                return int(step), lowest
            continue
        if value >= max(RISEN * lowest, lowest + min(guard, lowest), NOT_IMPROVED * curve.first):
            return int(step), lowest
        lowest = min(lowest, value)
    return None


def _early_noise(curve: Curve) -> float:
    """Of the loss as it was before it went wrong: the smallest of the noise of its parts."""
    parts = [part[np.isfinite(part)] for part in np.array_split(curve.values, 4)]
    spreads = [float(np.median(np.abs(np.diff(part)))) for part in parts if len(part) >= 4]
    return min(spreads, default=0.0)


def _rose_far(curve: Curve) -> bool:
    values = curve.values[curve.finite]
    return bool(len(values)) and float(values.max()) >= BLEW_UP * curve.first


def _large_updates(seen: Looks, step: int) -> Ints:
    """Places of the looks with large updates that the loss may have gone up from: those of the start or, later, the
    last two before."""
    earlier = seen.steps[seen.steps <= step]
    first = 0 if step <= FIRST_STEPS or not len(earlier) else int(earlier[-min(2, len(earlier))])
    return np.flatnonzero((seen.steps >= first) & (seen.steps <= step) & (seen.update >= LARGE_UPDATE))


def _growth(seen: Looks, first: float, since: int) -> float:
    """How many times `first` the gradients came to since a step; infinite where they lost their numbers."""
    after = seen.gradient[seen.steps >= since]
    known = after[np.isfinite(after)]
    return float("inf") if len(known) < len(after) else float(known.max() / first) if len(known) else float("nan")


def _rate_rose(facts: Facts, step: int) -> int | None:
    """The step at which the learning rate came to its height, where it had risen much when the loss went up."""
    steps, rate = rates(facts)
    known = steps <= step
    steps, rate = steps[known], rate[known]
    if len(rate) < 2 or not rate.min() > 0 or rate[-RISING:].max() < ROSE * rate.min():
        return None
    jumps = np.flatnonzero(rate[1:] >= ROSE * rate[:-1])
    return int(steps[jumps[-1] + 1]) if len(jumps) else step


def _look_after(steps: Ints, step: int) -> int:
    """The next look at or after a step."""
    later = steps[steps >= step]
    return int(later[0]) if len(later) else step


def _usual_before(seen: Looks, step: int) -> float:
    """Median of the gradients before, without the last look."""
    earlier = seen.gradient[(seen.steps < step) & np.isfinite(seen.gradient)]
    return float(np.median(earlier[:-1])) if len(earlier) >= 4 else float("inf")


def _forward_growth(facts: Facts) -> float:
    """Of the outputs of leaf modules at the first look: the largest beside the first."""
    rows = facts.rows(ActivationStat, 0, window=False)
    if not len(rows):
        return float("nan")
    rows = rows[(rows["step"] == rows["step"].min()) & (column(rows, ActivationStat, "training") > 0)]
    sizes = column(rows[np.argsort(rows["commit"])], ActivationStat, "rms")
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return float(sizes.max() / sizes[0]) if len(sizes) else float("nan")


def _looks(facts: Facts) -> Looks | None:
    by_position: dict[int, list[Layer]] = {}
    for layer in matrices(facts):
        by_position.setdefault(layer.position, []).append(layer)
    if not by_position:
        return None
    own: Sequence[Layer] = max(by_position.values(), key=len)
    steps = own[0].steps
    for layer in own[1:]:
        steps = np.intersect1d(steps, layer.steps)
    if not len(steps):
        return None
    rows = [np.isin(layer.steps, steps) for layer in own]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.array([layer.update[r] / layer.size[r] for layer, r in zip(own, rows, strict=True)])
        squares = [layer.numel * layer.raw[r] ** 2 for layer, r in zip(own, rows, strict=True)]
        force = np.array([x.numel * x.gradient[r] * x.size[r] for x, r in zip(own, rows, strict=True)])
    update = np.median(share, axis=0)
    large = np.flatnonzero(update >= LARGE_UPDATE)
    at = int(large[0]) if len(large) else int(np.nanargmax(update)) if np.isfinite(update).any() else 0
    worst = int(np.nanargmax(share[:, at])) if np.isfinite(share[:, at]).any() else 0
    return Looks(
        steps=steps,
        update=update,
        gradient=np.sqrt(np.nansum(squares, axis=0)),
        force=np.where(np.isfinite(force), force, 0.0).max(axis=0),
        worst=(own[worst].path, float(share[worst, at])),
    )


def lowest_rate_before(facts: Facts, step: int) -> float | None:
    """The lowest learning rate of the steps before one; None where there is none."""
    steps, rate = rates(facts)
    before = rate[steps < step]
    return float(before.min()) if len(before) else None


def rate_at(facts: Facts, step: int) -> float | None:
    """The learning rate of a step; None where it is not known."""
    steps, rate = rates(facts)
    at = np.flatnonzero(steps == step)
    return float(rate[at[0]]) if len(at) else None
