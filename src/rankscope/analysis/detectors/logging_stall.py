"""Finds runs that stand still while something is logged."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import stalls, timeline
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Finding
from rankscope.records.training import Step


class LoggingStall(Detector):
    """Logging stops the run: histograms, images or metrics are computed and written on the training thread.

    ## What it is
    A tracker or a hand-written logger that works at each step or every few steps while the model waits.

    ## What shows it
    Time in functions of logging libraries, or in functions that log by their name, on the critical path.

    ## What else looks like it
    Other slow code between phases (`slow-code`), a checkpoint.

    ## What to do
    Log less often, fewer tensors, from one rank; hand numbers to a background thread; keep histograms for debugging.
    """

    name = "logging-stall"
    needs = (Step,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stall = stalls.assess(facts, timeline.LOGGING)
        if stall is not None:
            yield stalls.finding(
                facts,
                stall,
                self.name,
                "logging",
                (
                    "log less often and fewer tensors, from one rank only",
                    "hand the numbers to a background thread; write in batches",
                ),
            )
