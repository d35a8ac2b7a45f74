"""Finds the exception that stopped the run."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class RankException(FailureDetector):
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
    title = "{who}: {why}{where}"
    advice = ("look at that line, with the batch that the rank had",)
