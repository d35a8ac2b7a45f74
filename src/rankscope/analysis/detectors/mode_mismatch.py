"""Finds ranks that train in another mode than their peers."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import FailureDetector
from rankscope.analysis.hangs import blame
from rankscope.analysis.modes import LAST, odd_modes
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.training import Backward, Forward


class ModeMismatch(FailureDetector):
    """Some ranks train in evaluation mode while the others are in training mode.

    ## What it is
    `model.eval()` on some ranks without the `model.train()` after it. Dropout and batch statistics then differ between
    ranks that should be equal; layers that synchronise only while they train wait for ever.

    ## What shows it
    The mode of the model in the last forward passes that a backward followed, the same on a rank and different between
    ranks that train the same model.

    ## What else looks like it
    An evaluation with gradients on one rank: no backward follows its forward.

    ## What to do
    Set the mode on all ranks in the same place, right before the training loop goes on.
    """

    name = "mode-mismatch"
    needs = (Forward, Backward)
    title = "{who} {why}"
    advice = (
        "call `model.train()` on every rank after an evaluation, also where only some ranks evaluate",
        "look for a `return` or an exception between `model.eval()` and `model.train()` on that rank",
    )

    def examine(self, facts: Facts) -> Iterator[Finding]:
        root = blame(facts)
        if root is not None and root.cause == self.name:
            yield from super().examine(facts)
            return
        positions, model = odd_modes(facts)
        if not positions:
            return
        numbers = facts.numbers(positions)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{numbered(numbers)} trained {model} in another mode than the other ranks at the end",
            ranks=numbers,
            all_ranks=False,
            phase="forward",
            component=model,
            location=None,
            first_step=None,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=(Evidence("last training passes in that mode", float(LAST), "count", numbers),),
            next=self.advice,
        )
