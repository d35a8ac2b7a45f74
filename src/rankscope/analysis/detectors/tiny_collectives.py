"""Finds steps with many small collectives from one place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import communication, wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector, worst_ranks
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.collective import Collective

MANY = 6
"""Small calls a step; a few (a loss, a flag, a norm) are how programs are written."""


class TinyCollectives(Detector):
    """Many small communication calls a step, each of which costs the latency of the slowest rank.

    ## What it is
    Metrics, counts or flags reduced one by one, each with a call of its own.

    ## What shows it
    Many calls with a few bytes from the same line at each step, and the time from entering them to leaving them.

    ## What else looks like it
    Few large calls (`communication-bound`), a rank that comes late to each of them.

    ## What to do
    Stack the numbers into one tensor and reduce once; reduce at the logging interval instead of every step.
    """

    name = "tiny-collectives"
    needs = (Collective,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.world_size < 2:
            raise CannotExamine("one rank: nothing is communicated")
        calls = [communication.user_calls(facts, p, communication.SMALL_BYTES) for p in range(facts.size)]
        per_step = np.array([len(c.rows) / max(1, len(facts.steps)) for c in calls])
        if per_step.max() < MANY:
            return
        masks = {p: c.segments for p, c in enumerate(calls)}
        # One call instead of n: what remains is the n-th part.
        gain = facts.gain_without(masks, keep=1 / per_step.max())
        if gain < MATERIAL:
            return
        position = int(np.argmax(per_step))
        place, share = communication.main_site(facts, position, calls[position].rows)
        ns = float(facts.timelines[position].durations()[masks[position]].sum())
        positions = worst_ranks(per_step)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{per_step.max():.0f} small collectives a step take {wording.percent(ns / facts.span_ns)} of the run"
            f"{wording.at(place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="communication",
            component=place.function if place else "small collectives",
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, ns, gain),
            evidence=(
                Evidence(
                    f"collectives of at most {communication.SMALL_BYTES} bytes a step", float(per_step.max()), "count"
                ),
                Evidence("of these are called from one line", share, "share"),
                Evidence("bytes in such a call (median)", float(np.median(calls[position].rows["b"])), "bytes"),
                Evidence("time in one such call", ns / max(1, len(calls[position].rows)) / 1e6, "ms"),
            ),
            next=(
                "stack the numbers into one tensor and reduce it with one call",
                "reduce when you log, not at every step",
            ),
        )
