"""Finds a rank that makes no progress outside of communication."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class StuckRank(FailureDetector):
    """A rank waits for a lock of its own program and never gets it.

    ## What it is
    Two threads hold what the other one wants, or whoever should release it is gone.

    ## What shows it
    The same stack in `threading`, without CPU time, for longer than the run's rhythm, while its peers wait.

    ## What else looks like it
    Long work (`slow-rank-timeout`), a loader whose workers wait (`loader-deadlock`).

    ## What to do
    Look at who holds the lock: the stacks of its other threads.
    """

    name = "stuck-rank"
    title = "{who} {why}{where}"
    advice = ("look at who holds what it waits for",)
