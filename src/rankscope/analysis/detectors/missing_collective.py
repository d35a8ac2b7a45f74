"""Finds a collective that not all ranks of its group called."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who} {why}"
ADVICE = ("call it on every rank of the group, or on none: with an empty tensor where there is nothing to give",)


class MissingCollective(Detector):
    """A rank called a collective that its peers did not, or skipped one that they called.

    ## What it is
    A collective stands under a condition that is not the same on all ranks: `if rank == 0`, a shard without objects.

    ## What shows it
    At the same count of a group's operations ranks called different ones; whose call is unusual after what was called
    before is the odd one.

    ## What else looks like it
    Two operations in another order (`collective-order-mismatch`), a rank that left the loop (`uneven-inputs`).

    ## What to do
    Call it on every rank, with an empty contribution where there is none.
    """

    name = "missing-collective"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
