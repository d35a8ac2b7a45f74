"""Finds parameters without a gradient that DDP waits for."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who}: parameters got no gradient, and DDP waits for them: {why}"
ADVICE = ("use them in the loss on every rank, freeze them, or set find_unused_parameters=True",)


class UnusedParameters(Detector):
    """A part of the model took no part in the loss, and DDP waits for its gradients.

    ## What it is
    A branch of the model is not used, always or for some batches of some ranks.

    ## What shows it
    DDP's own error, with the ranks on which it came first.

    ## What else looks like it
    A rank that skips its backward altogether (`missing-collective`).

    ## What to do
    Use every parameter on every rank, freeze what is not used, or give DDP `find_unused_parameters=True`.
    """

    name = "unused-parameters"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
