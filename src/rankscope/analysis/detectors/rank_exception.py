"""Finds the exception that stopped the run."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who}: {why}{where}"
ADVICE = ("look at that line, with the batch that the rank had",)


class RankException(Detector):
    """An exception of a rank came first; what its peers raised, or wait for, only follows.

    ## What it is
    The program raised on this rank: nobody caught it, or what caught it called something that the peers do not.

    ## What shows it
    The first exception among the ranks that does not speak of a lost peer, with the line that raised it.

    ## What else looks like it
    Errors of ranks that were left alone: closed connections, time-outs of collectives. They come later.

    ## What to do
    Look at the line; the batch that the rank had is what its peers did not have.
    """

    name = "rank-exception"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
