"""Finds the rank whose way into the network is slow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import communication, wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector
from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.host_time import host_time
from rankscope.base.finding import Evidence, Finding
from rankscope.records.collective import Collective

QUEUED = 0.15
"""Share of readings with unsent bytes that makes a path suspicious; a healthy one is emptied between two readings."""
STEADY = 0.8
"""Share of the steps in which the rank's path must be the slower one; chance gives one half."""


class SlowLink(Detector):
    """One rank's or node's way into the network is slow, and every collective waits for it.

    ## What it is
    A cable, a switch port, an interface that negotiated down, congestion: computing is as fast as elsewhere.

    ## What shows it
    On one rank communication itself takes longer than on the others, at nearly every step: the time between entering
    and leaving after everybody has come, or the time in code whose only purpose is communication, while it waits and
    does not compute.

    ## What else looks like it
    A rank that comes late (`slow-code`, `slow-data-loading`, `slow-device`): its time goes before the collective.

    ## What to do
    Test that rank's path to the others alone (a point-to-point benchmark), look at interface counters and speed, swap
    ports or nodes.
    """

    name = "slow-link"
    needs = (Collective,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nobody to compare with")
        time = np.array([communication.own_time_per_step(facts, p) for p in range(facts.size)])
        means = time.mean(axis=1)
        queued = communication.send_queue_share(facts)
        by_time = _by_time(facts, time)
        by_queue = _by_queue(facts, queued)
        position = by_queue if by_queue is not None else by_time
        if position is None:
            return
        excess = time[position] - np.median(np.delete(time, position, axis=0), axis=0)
        if by_queue is None:
            keep = float(np.median(np.delete(means, position)) / means[position])
            gain = facts.gain(lambda p, durations: _like_peers(facts, p, durations, position, keep))
            cost_ns = float(excess.sum())
        else:
            # All ranks wait for the same transfer: what the fix saves is its length beyond the run's quick ones.
            shortest, mean = communication.transfer_lengths(facts)
            keep = min(1.0, shortest / max(1.0, mean))
            gain = facts.gain_without({p: communication.transfers(facts, p) for p in range(facts.size)}, keep)
            cost_ns = gain * facts.span_ns
        if gain < MATERIAL:
            return
        number = facts.ranks[position].rank
        per_byte = communication.grows_with_bytes(facts, position)
        place, _ = communication.main_site(facts, position, facts.rows(Collective, position))
        slow = communication.hot_place_of_link(facts, position)
        compute = communication.compute_ratio(facts, position)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.85,
            title=f"rank {number}'s network path is slow: it costs {wording.ms(cost_ns / len(facts.steps))} a step",
            ranks=(number,),
            all_ranks=False,
            phase="communication",
            component=f"network path of rank {number}" + (f" ({slow.function})" if slow else ""),
            location=wording.location(slow or place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, cost_ns, gain),
            evidence=(
                *(
                    Evidence(
                        f"rank {facts.ranks[p].rank}: communication of its own, per step",
                        float(means[p]) / 1e6,
                        "ms",
                        (facts.ranks[p].rank,),
                    )
                    for p in range(facts.size)
                ),
                Evidence(
                    "steps in which this rank's path is the slower one", float((excess > 0).mean()), "share", (number,)
                ),
                Evidence("its compute time over its peers'", compute, "x", (number,)),
                *(
                    Evidence(
                        f"rank {facts.ranks[p].rank}: readings that found bytes waiting to be sent",
                        q,
                        "share",
                        (facts.ranks[p].rank,),
                    )
                    for p, q in enumerate(queued)
                    if q is not None
                ),
                *(
                    (Evidence("rank correlation of its communication time with bytes", per_byte, ""),)
                    if per_byte is not None
                    else ()
                ),
            ),
            next=(
                f"measure the path of rank {number}'s node alone: a point-to-point test against each peer",
                "look at link speed and error counters of its interface; swap port, cable or node",
            ),
        )


def _by_time(facts: Facts, time: np.ndarray) -> int | None:
    """The rank whose own communication takes longer than the others', steadily and while it waits, not computes."""
    means = time.mean(axis=1)
    position = int(np.argmax(means))
    excess = time[position] - np.median(np.delete(time, position, axis=0), axis=0)
    if means[position] < 2 * np.median(np.delete(means, position)):
        return None  # not clearly slower than its peers
    if (excess > 0).mean() < STEADY or float(excess.mean()) < MATERIAL * facts.mean_step_ns:
        return None
    # Who waits for a CPU leaves a collective late, too.
    delay = host_time(facts, position).run_delay or 0.0
    if float(excess.mean()) < 2 * delay * facts.mean_step_ns:
        return None
    return None if communication.computes_in_communication(facts, position) else position


def _by_queue(facts: Facts, queued: list[float | None]) -> int | None:
    """The rank whose connections hold unsent bytes again and again, where the others' hardly do."""
    known = [q for q in queued if q is not None]
    if len(known) < len(queued):
        return None
    position = int(np.argmax(known))
    others = float(np.median(np.delete(known, position)))
    return position if known[position] >= QUEUED and known[position] >= 4 * others else None


def _like_peers(facts: Facts, p: int, durations: Ints, position: int, keep: float) -> Ints | None:
    """Communication time of the slow rank's own shortened to what its peers take."""
    if p != position:
        return None
    mask = communication.own_segments(facts, position)
    durations[mask] = (durations[mask] * keep).astype(np.int64)
    return durations
