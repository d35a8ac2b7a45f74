"""Finds accumulation that reduces gradients at every micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import communication, wording
from rankscope.analysis.crowding import cpus_beside, speed_without
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.collective import Collective
from rankscope.records.training import Backward


class MissingNoSync(Detector):
    """Gradients are reduced after every micro-batch of an accumulation instead of after the last one.

    ## What it is
    Backward through `DistributedDataParallel` reduces gradients each time; only inside `no_sync()` it does not. A
    context that should skip the reduction and does nothing has the same effect.

    ## What shows it
    Several backward calls from one line per optimizer step, each with the same gradient reductions, and the time of
    those that were not needed.

    ## What else looks like it
    Several models with one backward each (a GAN) reduce different gradients; sharded models must reduce at each
    micro-batch unless memory allows otherwise.

    ## What to do
    `with model.no_sync():` around all micro-batches but the last; with FSDP2 `set_requires_gradient_sync(False)`.
    """

    name = "missing-no-sync"
    needs = (Backward, Collective)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.world_size < 2:
            raise CannotExamine("one rank: nothing is communicated")
        found = [communication.accumulation(facts, p) for p in range(facts.size)]
        if any(a is None for a in found):
            return
        accumulations = [a for a in found if a is not None]
        masks = {p: a.needless for p, a in enumerate(accumulations)}
        gain = facts.gain_without(masks)
        if gain < MATERIAL:
            return
        first = accumulations[0]
        # Reductions also run beside the backward, and take CPU time from it.
        spared = 1 - 1 / max(1, first.reductions)
        beside = sum(cpus_beside(facts, p) for p in range(facts.size)) * spared
        gain = max(gain, facts.gain_without(masks, speed=speed_without(facts, beside)))
        ns = float(np.mean([facts.timelines[p].durations()[masks[p]].sum() for p in range(facts.size)]))
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.95,
            title=f"gradients are reduced {first.micro_batches} times a step, once would do{wording.at(first.place)}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="communication",
            component="gradient reduction in accumulation (no_sync)",
            location=wording.location(first.place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, ns, gain),
            evidence=(
                Evidence("micro-batches in a step", float(first.micro_batches), "count"),
                Evidence("gradient reductions in a step", float(first.reductions), "count"),
                Evidence("of the run goes into reductions before the last micro-batch", ns / facts.span_ns, "share"),
            ),
            next=(
                "put all micro-batches but the last into `with model.no_sync():`",
                "check that the context really reaches the DistributedDataParallel object",
            ),
        )
