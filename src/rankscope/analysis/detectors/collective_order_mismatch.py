"""Finds collectives that ranks call in different order."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "ranks call collectives in different orders: {why}"
ADVICE = ("go through the same things in the same order on every rank (sort the keys)",)


class CollectiveOrderMismatch(Detector):
    """At the same count of a group's operations ranks call different ones of the same loop.

    ## What it is
    The order depends on something that differs between ranks: a set, a dictionary, files of a folder.

    ## What shows it
    Different operations at the same count, from lines of the same loop or function.

    ## What else looks like it
    A rank that skips one of them (`missing-collective`).

    ## What to do
    Sort what is gone through, so that the order is the same on every rank.
    """

    name = "collective-order-mismatch"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
