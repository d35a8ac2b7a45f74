"""Finds a rank that was busy longer than its peers wait."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class SlowRankTimeout(FailureDetector):
    """A rank did something of its own until the time-out of its peers ended the run.

    ## What it is
    Work of one rank (preparing data, saving, evaluating) while the others wait in a collective.

    ## What shows it
    Peers raised a time-out; this rank was in the user's code all the time.

    ## What else looks like it
    A rank that will never come (`stuck-rank`).

    ## What to do
    Do the work before the group is formed, split it over ranks, or raise the group's time-out.
    """

    name = "slow-rank-timeout"
    title = "{who} {why}{where}"
    advice = ("shorten that work or split it over ranks; or give init_process_group a longer timeout",)
