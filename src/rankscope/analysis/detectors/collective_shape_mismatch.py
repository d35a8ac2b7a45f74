"""Finds collectives whose sizes or types differ between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "sizes differ between ranks: {why}{where}"
ADVICE = ("agree on the size before the call (all_reduce of the maximum), and pad",)


class CollectiveShapeMismatch(Detector):
    """All ranks call the same collective, with tensors of different sizes or types.

    ## What it is
    A tensor's size comes from data of the rank: a number of classes, a last batch, a vocabulary.

    ## What shows it
    The last operation that all ranks called has different shapes on them. The rank that dies is the one with the
    smaller buffer, which need not be the wrong one.

    ## What else looks like it
    Operations that allow different sizes (`all_gather` of objects, `all_to_all`) are not compared.

    ## What to do
    Agree on the size first, or pad to the largest.
    """

    name = "collective-shape-mismatch"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
