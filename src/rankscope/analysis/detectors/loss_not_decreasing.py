"""Finds trainings whose loss stays where it began."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import rates
from rankscope.analysis.losses import PART_AT_END, Curve, curves, not_made_to_fall
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.activations import PredictionStat
from rankscope.records.numerics import LossValue

FEWEST_STEPS = 100
"""Below, a training may simply not have got anywhere yet."""
LONG = 2000
"""Steps from which on it should have: programs that only measure speed train on random labels, but not for so long."""
FELL = 0.05
"""Part of the first value by which any loss falls that learns something, be it only how often each answer is right."""
CHANCE = 0.02
"""Distance from the loss of guessing, as a part of it, within which nothing but guessing is learned."""
KNOWS_NOTHING = 0.98
"""Entropy of the predictions, as a share of the largest, from which on they prefer nothing."""
FULL_RATE = 0.5
"""A schedule whose learning rate has come to its height only in the last half is still warming up."""


class LossNotDecreasing(Detector):
    """The loss at the end is what it was at the start; a symptom, where no cause is found.

    ## What it is
    The model learns nothing: what reaches it has nothing to do with what it is asked for, or nothing of it moves.

    ## What shows it
    The median loss of the last third beside the first loss. A warning after many steps only, and where the loss is
    that of guessing (ln of the number of classes) and the predictions prefer nothing; a remark else.

    ## What else looks like it
    Synthetic data with random labels cannot be learned. A long warm-up, or a task that is learned all at once, is flat
    at first. Losses of games, of policies and of contrasts need not fall.

    ## What to do
    Train on one batch until it is known by heart: if that fails, labels, loss or model are wrong; if not, look at the
    data, the learning rate and what is trained.
    """

    name = "loss-not-decreasing"
    needs = (LossValue,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        why = not_made_to_fall(facts)
        if why is not None:
            raise CannotExamine(why)
        curve = curves(facts)[0]
        if len(curve.steps) < FEWEST_STEPS:
            raise CannotExamine(f"fewer than {FEWEST_STEPS} steps with a loss")
        first = _first_level(curve)
        end = curve.end
        if not first > 0 or not np.isfinite(end) or end > 2 * first:
            return  # it has gone up: another cause's
        fell = (first - end) / first
        error = curve.noise / math.sqrt(len(curve.steps) / PART_AT_END) / first
        if fell >= FELL or (fell > 5 * error and error > 0 and fell >= FELL / 2) or _warms_up(facts):
            return
        guess = _guessing(facts, curve)
        chance = guess is not None and abs(end - guess[0]) <= CHANCE * guess[0] and guess[1] >= KNOWS_NOTHING
        yield Finding(
            cause=self.name,
            severity="warning" if chance and len(curve.steps) >= LONG else "info",
            confidence=0.7 if chance else 0.5,
            title=f"the loss stays at {end:.3g} for {len(curve.steps)} steps"
            + (f", that of guessing among {guess[2]}" if chance and guess is not None else f" ({first:.3g} at first)"),
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase=None,
            component="loss",
            location=wording.location(curve.place),
            first_step=int(curve.steps[0]),
            last_step=int(curve.steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("loss of the first steps", first, ""),
                Evidence("median loss of the last third", end, ""),
                Evidence("noise of the loss from step to step", curve.noise, ""),
                *([Evidence("loss of guessing", guess[0], ""),
                   Evidence("entropy of the predictions, of the largest", guess[1], "share")]
                  if chance and guess is not None else []),
            ),
            next=(
                "train on one batch until it is known by heart: if that fails, labels, loss or model are wrong",
                "check that inputs and labels belong together, and what the optimizer holds",
            ),
        )  # fmt: skip


def _first_level(curve: Curve) -> float:
    """Median of a few steps at the start."""
    values = curve.values[: max(3, len(curve.values) // 50)]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else float("nan")


def _warms_up(facts: Facts) -> bool:
    """Whether the learning rate was low for most of the run."""
    _, rate = rates(facts)
    return len(rate) > 0 and float(np.median(rate)) < FULL_RATE * float(rate.max())


def _guessing(facts: Facts, curve: Curve) -> tuple[float, float, int] | None:
    """(loss of guessing, entropy of the last predictions as a share of the largest, classes) of the model whose number
    of classes comes nearest to the loss; None where no predictions are known."""
    rows = facts.rows(PredictionStat, 0, window=False)
    rows = rows[(column(rows, PredictionStat, "training") > 0) & np.isfinite(column(rows, PredictionStat, "entropy"))]
    found = []
    for name in np.unique(rows["name"]).tolist():
        last = rows[rows["name"] == name][-1:]
        units = int(column(last, PredictionStat, "units")[0])
        if units > 1:
            found.append((math.log(units), float(column(last, PredictionStat, "entropy")[0]), units))
    return min(found, key=lambda one: abs(one[0] - curve.end), default=None)
