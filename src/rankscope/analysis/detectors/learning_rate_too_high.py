"""Finds a learning rate whose steps throw the weights about."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.divergence import (
    FIRST_STEPS,
    LARGE_UPDATE,
    divergence,
    looks,
    lowest_rate_before,
    rate_at,
)
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import GradientStat, LossValue, WeightStat


class LearningRateTooHigh(Detector):
    """Updates are as large as the weights, the loss goes up with the gradients, and does not come back.

    ## What it is
    A step so large that the gradient, which only tells of the slope nearby, is of no use: the loss grows, the gradient
    with it, and the next step is larger still. Or a schedule that starts at its full rate, without warm-up.

    ## What shows it
    Update per weight, median of the layers, of a tenth and more in a step before the loss went up; gradients that
    have grown since; and a loss that is no better at the end than before the first update.

    ## What else looks like it
    Biases, scales and layers that begin at zero have large updates for their size, and are left out. The first steps
    of Adam are large in small networks, and the loss falls all the same. Gradients that are never cleared grow too.
    Losses of games and of policies need not fall.

    ## What to do
    A rate ten times lower; warm-up over the first hundreds of steps; clip gradients; check that the rate was scaled
    with the batch size on purpose.
    """

    name = "learning-rate-too-high"
    needs = (WeightStat, GradientStat, LossValue)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if looks(facts) is None:
            raise CannotExamine("no layers of weights that are trained")
        found = divergence(facts)
        if found is None or found.cause != "learning-rate":
            return
        curve, seen = found.curve, found.looks
        rate = rate_at(facts, found.begin)
        later = np.flatnonzero(seen.steps >= found.begin)
        at = int(later[0]) if len(later) else len(seen.steps) - 1
        update = float(seen.update[at])
        end = "is not a number" if not np.isfinite(curve.end) else f"ends at {curve.end:.3g}"
        low = lowest_rate_before(facts, found.begin)
        what = f"the learning rate{f' {rate:g}' if rate is not None else ''} "
        if update < LARGE_UPDATE and low is not None and rate is not None:  # no look was near enough
            what += f"had risen from {low:g} by step {found.begin}"
        else:
            what += f"changes the weights by {wording.percent(update)} in a step"
        yield Finding(
            cause=self.name,
            severity="critical" if found.hopeless else "warning",
            confidence=0.9 if found.hopeless else 0.8,
            title=f"{what}: the loss was {curve.first:.3g} before the first step, and {end}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="optimizer",
            component=seen.worst[0],
            location=wording.location(curve.place),
            first_step=found.begin,
            last_step=int(curve.steps[-1]),
            cost=Cost(None, None, None),
            evidence=tuple(
                Evidence(text, value, unit)
                for text, value, unit in (
                    ("update per weight, median of the layers", update, "share"),
                    (f"update per weight of {seen.worst[0]}", seen.worst[1], "share"),
                    ("loss before the first update", curve.first, ""),
                    ("highest loss since", found.peak, ""),
                    ("loss at the end", curve.end, ""),
                    ("gradients have grown since the first step", found.gradient_growth, "x"),
                    ("learning rate", rate, ""),
                )
                if value is not None and np.isfinite(value)
            ),
            next=(
                "try a learning rate ten times lower",
                "warm the rate up over the first hundreds of steps"
                if found.begin < FIRST_STEPS
                else "look at what the schedule does at this step",
                "clip gradients by their norm",
            ),
        )
