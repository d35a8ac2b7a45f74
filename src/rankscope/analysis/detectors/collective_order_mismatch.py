"""Finds collectives that ranks call in different order."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class CollectiveOrderMismatch(FailureDetector):
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
    title = "ranks call collectives in different orders: {why}"
    advice = ("go through the same things in the same order on every rank (sort the keys)",)
