"""Finds runs that mostly transfer data, on all ranks alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import communication, wording
from rankscope.analysis.crowding import more_ranks_than_cpus
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.collective import Collective

DOMINATES = 0.5
"""Share of the step: with more, a faster network gains more than any faster code could."""
LATENCY_AT_MOST_NS = 2_000_000
"""Of a run without small messages, whose latency was not measured: what gloo needs for a few bytes on busy CPUs (0.1 to
1.5 ms, measured) stays below. A longer transfer has to do with the amount of data."""


class CommunicationBound(Detector):
    """On all ranks more than half of the step is communication that nothing overlaps, with all ranks present.

    ## What it is
    The network is too slow for the amount of data, or nothing is left to overlap it with.

    ## What shows it
    Time from the last rank's entry into a collective to its end (the transfer, without waiting for late ranks), on
    the critical path.

    ## What else looks like it
    A late rank: then the others wait, which is charged to that rank. Many tiny calls (`tiny-collectives`), reductions
    that are not needed (`missing-no-sync`), one slow path (`slow-link`).

    Ranks that share a CPU take turns at communicating: where a host has more ranks than CPUs, this is a remark only.

    ## What to do
    Larger batches or accumulation with `no_sync`, gradient compression or bf16 reduction, larger buckets, a faster
    interface (check which one the backend uses).
    """

    name = "communication-bound"
    needs = (Collective,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.world_size < 2:
            raise CannotExamine("one rank: nothing is communicated")
        pieces = facts.attribution.pieces
        moved = pieces[pieces["transfer"] > 0]
        ns = float((moved["end"] - moved["start"]).sum())
        share = ns / facts.span_ns
        if share < DOMINATES:
            return
        own = [communication.transfer_ns(facts, p) for p in range(facts.size)]
        if min(own) < 0.5 * max(own):
            return  # one rank's path: slow-link
        if communication.small_share(facts) > 0.5:
            return  # many small calls, not much data: tiny-collectives
        measured = communication.latency_ns(facts)
        latency = LATENCY_AT_MOST_NS if measured is None else measured
        count = communication.calls_per_step(facts)
        # Mostly the fixed cost of a call: the steps are too small to say anything about the network.
        fixed = latency * count > 0.5 * ns / len(facts.steps)
        bytes_per_step = communication.bytes_per_step(facts)
        place, _ = communication.main_site(facts, 0, facts.rows(Collective, 0))
        yield Finding(
            cause=self.name,
            severity="info" if fixed or more_ranks_than_cpus(facts) else "warning",
            confidence=0.7,
            title=f"communication takes {wording.percent(share)} of the step with all ranks present",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="communication",
            component="collectives",
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(
                facts, ns, facts.gain_without({p: communication.transfers(facts, p) for p in range(facts.size)})
            ),
            evidence=(
                Evidence("transfer time on the critical path, per step", ns / len(facts.steps) / 1e6, "ms"),
                Evidence("bytes communicated by a rank in a step", bytes_per_step, "bytes"),
                Evidence("collectives of a rank in a step", count, "count"),
                *([] if measured is None else [Evidence("shortest transfer (latency)", measured / 1e6, "ms")]),
                Evidence(
                    "smallest over largest transfer time of the ranks", min(own) / max(1.0, float(np.max(own))), "share"
                ),
            ),
            next=(
                "communicate less: accumulate with no_sync, reduce in bf16, larger batches",
                "check which network interface the backend uses, and its bandwidth",
            ),
        )
