"""Finds a rank that left the training loop by a decision of its own."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who} left the training loop by a decision of its own: {why}"
ADVICE = ("let all ranks decide together: all_reduce the metric or the flag before `break`",)


class LocalEarlyStop(Detector):
    """A rank stopped training while its peers go on and wait for it.

    ## What it is
    Each rank decides from its own metric when to stop, and they do not agree.

    ## What shows it
    The rank is behind the loop, or at the end of its program, with batches left; its peers wait in the loop.

    ## What else looks like it
    A rank without batches left (`uneven-inputs`).

    ## What to do
    Reduce the metric (or the decision) over all ranks before acting on it.
    """

    name = "local-early-stop"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
