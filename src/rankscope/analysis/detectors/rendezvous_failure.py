"""Finds runs whose processes never formed a group."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class RendezvousFailure(FailureDetector):
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
    title = "{who}: the processes formed no group: {why}{where}"
    advice = ("choose a free port (torchrun --standalone, or --rdzv-endpoint host:0), and end what holds the old one",)
