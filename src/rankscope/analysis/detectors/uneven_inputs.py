"""Finds a rank that ran out of batches before its peers."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who} ran out of batches before the others: {why}"
ADVICE = ("give every rank the same number of batches (DistributedSampler, drop_last), or use `model.join()`",)


class UnevenInputs(Detector):
    """A rank has fewer batches than its peers, which wait for it in a collective for ever.

    ## What it is
    The data is not split evenly, or a rank drops samples that the others keep.

    ## What shows it
    The rank's loader came to its end once more than those of its peers, or it is behind the loop that they are in.

    ## What else looks like it
    A rank that leaves the loop by a decision of its own (`local-early-stop`).

    ## What to do
    Use a `DistributedSampler` (with `drop_last` or padding), or DDP's `join()`; agree on the number of batches before
    the epoch.
    """

    name = "uneven-inputs"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
