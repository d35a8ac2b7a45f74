"""Finds a collective that not all ranks of its group called."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class MissingCollective(FailureDetector):
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
    title = "{who} {why}"
    advice = ("call it on every rank of the group, or on none: with an empty tensor where there is nothing to give",)
