"""Finds errors of the network between ranks."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class NetworkError(FailureDetector):
    """Connections between ranks failed although all of them were there.

    ## What it is
    A link, a switch or a route failed, or a firewall cut a connection. The ranks themselves had done nothing wrong.

    ## What shows it
    The first errors of the run are those of the network, and no rank had died, left or stopped before them.

    ## What else looks like it
    A peer that dies closes its connections, too: then its end is the first one (`dead-rank`, `rank-exception`).

    ## What to do
    Look at the network between the nodes of the ranks that are named.
    """

    name = "network-error"
    title = "{who}: the network failed: {why}{where}"
    advice = (
        "look at the links of the ranks' nodes (port errors, routes, firewalls), and which interface the job uses",
        "with NCCL: run once with `NCCL_DEBUG=WARN`; it names the device and the peer",
    )
