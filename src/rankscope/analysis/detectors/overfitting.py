"""Finds trainings whose evaluation loss goes up while the training loss goes down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.losses import Curve, curves, evaluations, not_made_to_fall
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import LossValue

FEWEST = 5
"""Evaluations; and so many steps of them after the lowest one, less two."""
WORSE = 1.1
"""From which on the evaluation loss has gone up, beside its lowest level, for a remark."""
MUCH_WORSE = 1.5
"""For a warning: the model is then surer of wrong answers, which few would call a success."""
LEARNED = 0.9
"""Of the training loss before any update, what the lowest evaluation loss came down to at most, for a warning: labels
that cannot be learned (random ones, of programs that measure speed) are known by heart all the same."""
STILL_FELL = 0.9
"""Of the training loss at the best evaluation, what it is at the end at most."""


class Overfitting(Detector):
    """The evaluation loss has been going up since its best, and the training loss down; a symptom.

    ## What it is
    The model learns its training data by heart: more of it makes the rest worse.

    ## What shows it
    Evaluation losses that the program computes without gradients, or gives to `rankscope.log` by a name like
    `val_loss`: at least half above the lowest one at the end, while the training loss has fallen further.

    ## What else looks like it
    A few evaluations of few samples vary by themselves. A training loss with augmentation, dropout or label smoothing
    may be the higher one. Evaluation inputs that are prepared differently are wrong from the start.

    ## What to do
    Keep the checkpoint of the best evaluation and stop early; more data or augmentation, weight decay, dropout, a
    smaller model.
    """

    name = "overfitting"
    needs = (LossValue,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        why = not_made_to_fall(facts)
        if why is not None:
            raise CannotExamine(why)
        known = [c for c in evaluations(facts) if len(c.steps) >= FEWEST]
        if not known:
            raise CannotExamine(f"fewer than {FEWEST} evaluation losses are known")
        train = curves(facts)[0]
        found = [f for curve in known if (f := self._judge(facts, curve, train)) is not None]
        if found:
            yield max(found, key=lambda f: f.severity == "warning")

    def _judge(self, facts: Facts, curve: Curve, train: Curve) -> Finding | None:
        values = curve.values[curve.finite]
        steps = curve.steps[curve.finite]
        if len(values) < FEWEST:
            return None
        best = int(np.argmin(values))
        last = float(np.median(values[-3:]))
        lowest = float(np.median(values[max(0, best - 1) : best + 2]))
        noise = float(np.median(np.abs(np.diff(values))))
        if len(values) - best - 1 < FEWEST - 2 or lowest <= 0 or last < max(WORSE * lowest, lowest + 3 * noise):
            return None
        at_best = train.between(int(steps[best]) - 10, int(steps[best]) + 10)
        if not len(at_best) or train.end > STILL_FELL * float(np.median(at_best)):
            return None
        return Finding(
            cause=self.name,
            severity="warning" if last >= MUCH_WORSE * lowest and lowest <= LEARNED * train.first else "info",
            confidence=0.8,
            title=f"the evaluation loss was lowest at step {steps[best]} ({lowest:.3g}) and has risen to {last:.3g} "
            f"since, while the training loss fell to {train.end:.3g}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="evaluation",
            component=curve.site if curve.place is None else "evaluation loss",
            location=wording.location(curve.place),
            first_step=int(steps[best]),
            last_step=int(steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("lowest evaluation loss", lowest, ""),
                Evidence("evaluation loss at the end", last, ""),
                Evidence("training loss at the best evaluation", float(np.median(at_best)), ""),
                Evidence("training loss at the end", train.end, ""),
                Evidence("evaluations", float(len(values)), "count"),
            ),
            next=(
                f"keep the checkpoint of step {steps[best]}, and stop early",
                "more data or augmentation, weight decay, dropout, or a smaller model",
            ),
        )
