"""Finds runs whose processes never formed a group."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who}: the processes formed no group: {why}{where}"
ADVICE = ("choose a free port (torchrun --standalone, or --rdzv-endpoint host:0), and end what holds the old one",)


class RendezvousFailure(Detector):
    """The processes did not find each other.

    ## What it is
    A port that is in use, a wrong address, a wrong world size.

    ## What shows it
    The first error, which speaks of the rendezvous.

    ## What else looks like it
    A rank that dies before it joins (`dead-rank`).

    ## What to do
    Choose another MASTER_PORT (or `--standalone`), check the address from each node.
    """

    name = "rendezvous-failure"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
