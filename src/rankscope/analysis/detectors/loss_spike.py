"""Finds steps at which the loss jumps far above its level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import rates
from rankscope.analysis.losses import MAD_TO_SIGMA, Curve, curves, not_made_to_fall
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import LossValue

BEFORE = 15
"""Steps whose median is the level that a spike stands above."""
FEWEST_AFTER = 10
"""Steps after a spike without which nothing is said of whether the loss came back."""
HIGH = 2.0
"""A spike is so many times its level at least."""
OUTSTANDING = 10.0
"""And so many standard deviations of the noise around it: losses have heavy tails, but not such ones."""
SMALLEST_NOISE = 0.02
"""Of the level: a loss that hardly varies is not therefore known to a thousandth."""
WORTH = 0.1
"""Of the loss before any update: what is below that after a spike is still learned."""
RESTART = 2.0
"""A learning rate that rises so many times lifts the loss on purpose: a schedule with restarts."""


@dataclass(frozen=True, slots=True)
class Spike:
    step: int
    level: float
    value: float
    noise: float
    lasted: int
    """Steps until the loss was back at half the height."""
    back: bool


class LossSpike(Detector):
    """The loss jumps far above its level; a symptom, where no cause is found.

    ## What it is
    One bad batch, an update that was too large, or numbers that left the range of their format.

    ## What shows it
    A step's loss at twice the median of the steps before and far outside of their noise. A remark where it comes
    back; a warning where it stays up to the end.

    ## What else looks like it
    Learning rates with restarts lift the loss for a while. Losses of games and of policies jump by nature. The first
    steps of a training have no level yet.

    ## What to do
    Look at the batch of that step, at the gradient norm and the learning rate; clip gradients; go on from a
    checkpoint before it and skip the batch.
    """

    name = "loss-spike"
    needs = (LossValue,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        why = not_made_to_fall(facts)
        if why is not None:
            raise CannotExamine(why)
        curve = curves(facts)[0]
        if len(curve.steps) < 2 * BEFORE:
            raise CannotExamine(f"fewer than {2 * BEFORE} steps with a loss")
        found = [spike for spike in _spikes(curve) if not _restarts(facts, spike.step)]
        if not found:
            return
        stays = [s for s in found if not s.back]
        worst = stays[0] if stays else max(found, key=lambda s: s.value / s.level)
        more = f" (and {len(found) - 1} more times)" if len(found) > 1 else ""
        after = f"came back within {worst.lasted} steps" if worst.back else "did not come back"
        yield Finding(
            cause=self.name,
            severity="info" if worst.back else "warning",
            confidence=0.8,
            title=f"the loss jumps from {worst.level:.3g} to {worst.value:.3g} at step {worst.step}{more} and {after}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase=None,
            component="loss",
            location=wording.location(curve.place),
            first_step=worst.step,
            last_step=found[-1].step if worst.back else int(curve.steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("loss at the spike", worst.value, ""),
                Evidence(f"median of the {BEFORE} steps before", worst.level, ""),
                Evidence("standard deviation of the loss around it", worst.noise, ""),
                Evidence("spikes", float(len(found)), "count"),
            ),
            next=(
                "look at the batch of this step, and at the gradient norm and the learning rate",
                "clip gradients; go on from a checkpoint before it and leave the batch out",
            ),
        )


def _spikes(curve: Curve) -> list[Spike]:
    values, steps = curve.values[curve.finite], curve.steps[curve.finite]
    found: list[Spike] = []
    i = BEFORE
    while i < len(values):
        before = values[i - BEFORE : i]
        level = float(np.median(before))
        noise = max(MAD_TO_SIGMA * float(np.median(np.abs(before - level))), SMALLEST_NOISE * abs(level))
        # The usual noise of the run as well: a quiet moment is not the measure of the next one.
        noise = max(noise, curve.noise)
        least = max(HIGH * level, level + OUTSTANDING * noise, WORTH * curve.first)
        if level > 0 and values[i] >= least:
            half = level + (float(values[i]) - level) / 2
            below = np.flatnonzero(values[i:] < half)
            lasted = int(below[0]) if len(below) else len(values) - i
            known = len(below) > 0 or len(values) - i < FEWEST_AFTER
            found.append(Spike(int(steps[i]), level, float(values[i]), noise, lasted, known))
            i += max(lasted, 1) + BEFORE // 3
        else:
            i += 1
    return found


def _restarts(facts: Facts, step: int) -> bool:
    """Whether the learning rate rose shortly before, by its schedule."""
    steps, rate = rates(facts)
    before = rate[(steps < step) & (steps >= step - BEFORE)]
    return len(before) > 0 and float(before.max()) >= RESTART * float(before[0]) > 0
