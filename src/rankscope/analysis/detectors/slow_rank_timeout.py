"""Finds a rank that was busy longer than its peers wait."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who} {why}{where}"
ADVICE = ("shorten that work or split it over ranks; or give init_process_group a longer timeout",)


class SlowRankTimeout(Detector):
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
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
