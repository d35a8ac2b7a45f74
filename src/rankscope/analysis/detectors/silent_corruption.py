"""Finds data that is another on one rank after a collective than on its peers, now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rankscope.analysis import tensors, wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.replicas import communicates
from rankscope.analysis.synchronisation import Odd, odd_gradients, one_after_another, parted_weights
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.numerics import GradientStat

SHOWN = 3


class SilentCorruption(Detector):
    """A device, a link or a library returns wrong values, and nothing reports an error.

    ## What it is
    After a reduction every rank holds the same numbers. Now and then one rank's copy is another one, or zeros: a
    transfer that loses data (peer-to-peer over a broken bridge), a device that computes wrongly, a buffer that is
    reused too early.

    ## What shows it
    Gradients that agree on most sampled steps and differ on some, though as much was reduced in those steps as ever; or
    single parameters that part from their replicas one after the other, while their gradients agree whenever sampled.

    ## What else looks like it
    A reduction that is left out on some steps is seen among the collectives. What a program changes on one rank parts
    all parameters at once.

    ## What to do
    Run without peer-to-peer (`NCCL_P2P_DISABLE=1`) and with another device in place of this one; test the machine.
    """

    name = "silent-corruption"
    needs = (GradientStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is no other copy to compare with")
        if not communicates(facts):
            raise CannotExamine("the ranks do not communicate")
        found = odd_gradients(facts)
        if found:
            yield self._seen(facts, found)
        else:
            yield from self._inferred(facts)

    def _seen(self, facts: Facts, found: tuple[Odd, ...]) -> Finding:
        votes = Counter(p for one in found for p in one.positions)
        most = max(votes.values())
        positions = tuple(sorted(p for p, n in votes.items() if n == most))
        worst = max(found, key=lambda one: one.distance)
        steps = sorted({one.step for one in found})
        paths = list(dict.fromkeys(one.key[1] for one in found))
        what = "zeros" if any(one.zero for one in found) else "other values"
        series = tensors.gradients(facts)[worst.key]
        return Finding(
            cause=self.name,
            severity="critical",
            confidence=0.9,
            title=f"{wording.ranks(facts, positions)} got {what} out of a reduction on {len(steps)} of "
            f"{len(series.steps)} sampled steps: the gradient of {', '.join(paths[:SHOWN])} differs from the peers'",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="communication",
            component=", ".join(paths[:SHOWN]),
            location=None,
            first_step=steps[0],
            last_step=steps[-1],
            cost=Cost(None, None, None),
            evidence=(
                Evidence("sampled steps with a copy that differs", float(len(steps)), "count",
                         facts.numbers(positions)),
                Evidence(f"largest distance from the peers' copy, {worst.key[1]}, step {worst.step}", worst.distance,
                         "share", facts.numbers(positions)),
            ),
            next=_NEXT,
        )  # fmt: skip

    def _inferred(self, facts: Facts) -> Iterator[Finding]:
        """No bad copy was sampled, but parameters part one after the other."""
        if not one_after_another(facts):
            return
        parted = parted_weights(facts)
        times = sorted({one.first for one in parted})
        positions = parted[0].positions
        paths = [one.key[1] for one in parted]
        yield Finding(
            cause=self.name,
            severity="critical",
            confidence=0.6,
            title=f"parameters part from their replicas one after the other ({', '.join(paths[:SHOWN])}), though their "
            "gradients agree: a reduction now and then gives one rank other values",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="communication",
            component=", ".join(paths[:SHOWN]),
            location=None,
            first_step=times[0],
            last_step=None,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("parameters that differ at the end", float(len(parted)), "count"),
                Evidence("moments at which one of them parted from its replica", float(len(times)), "count"),
            ),
            next=_NEXT,
        )


_NEXT = (
    "run with NCCL_P2P_DISABLE=1, and with the rank on another device, to see which of them it follows",
    "look at what handles tensors around the reduction: a communication hook, a buffer that is reused",
)
