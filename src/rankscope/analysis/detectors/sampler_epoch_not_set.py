"""Finds training loaders that give every epoch in the same shuffled order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.orders import runs
from rankscope.analysis.reading import Pass, by_source, training_passes
from rankscope.analysis.restores import restored_between
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import Batch, LoaderPass

FEWEST_BATCHES, FEWEST_SAMPLES = 2, 8
"""In common between two passes: the order of one batch alone does not matter, and eight samples come in the same order
by chance once in 40,000."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    position: int
    passes: list[Pass]
    batches: int
    """That two passes have in common, at least."""


class SamplerEpochNotSet(Detector):
    """Every epoch has the same shuffled order.

    ## What it is
    `DistributedSampler` shuffles by its seed and its epoch: without `set_epoch` the epoch stays 0. The same comes of a
    generator that is made anew with the same seed at each epoch.

    ## What shows it
    The sample indices of a training pass are, batch for batch, those of the pass before, and do not rise.

    ## What else looks like it
    A loader that does not shuffle at all (indices rise; `unshuffled-data` says whether that does harm). One batch that
    is the whole dataset. A validation, whose order is fixed. Sorting by length. A restart after a checkpoint.

    ## What to do
    `sampler.set_epoch(epoch)` before each epoch; one generator for the whole run.
    """

    name = "sampler-epoch-not-set"
    needs = (Batch, LoaderPass)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not any((p.of("order") > 0).any() for i in range(facts.size) for p in training_passes(facts, i)):
            raise CannotExamine("no sample indices of a training loader were seen")
        found = [r for i in range(facts.size) for r in _repeated(facts, i)]
        if not found:
            if not any(len(same) > 1 for i in range(facts.size) for same in _groups(facts, i)):
                raise CannotExamine("no loader was gone through twice")
            return
        positions = tuple(sorted({r.position for r in found}))
        first = found[0]
        second = first.passes[1]
        sampler = second.sampler
        kind = sampler.kind if sampler is not None else "its sampler"
        stuck = sampler is not None and sampler.replicas > 0 and sampler.epoch is not None
        why = f": {kind} stays at epoch {sampler.epoch}" if stuck and sampler is not None else f" from {kind}"
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.97 if stuck else 0.85,
            title=f"all {len(first.passes)} epochs of {second.dataset} have the same shuffled order{why}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=kind if sampler is not None else second.dataset,
            location=wording.location(second.place),
            first_step=int(second.steps[0]),
            last_step=int(first.passes[-1].steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("passes with the same sample indices", float(len(first.passes)), "count"),
                Evidence("batches of each that are the same", float(first.batches), "count"),
            ),
            next=(
                "call sampler.set_epoch(epoch) before each epoch"
                if stuck
                else "make the generator once, or seed it with the epoch",
                "look for a sampler that is made anew in each epoch",
            ),
        )


def _groups(facts: Facts, position: int) -> list[list[Pass]]:
    return list(by_source(training_passes(facts, position)).values())


def _repeated(facts: Facts, position: int) -> Iterator[_Repeated]:
    for same in _groups(facts, position):
        if len(same) < 2 or any(p.in_dataset_order or runs(p.of("length")).sorted for p in same):
            continue
        pairs = [
            (a, b) for a, b in pairwise(same)
            if not restored_between(facts, position, a.begin_ns, b.begin_ns)
        ]  # fmt: skip
        common = [_in_common(a, b) for a, b in pairs]
        known = [n for n in common if n is not None]
        if known and all(n > 0 for n in known):
            yield _Repeated(position, same, min(known))


def _in_common(first: Pass, second: Pass) -> int | None:
    """Batches of two passes with the same indices, all of those that can be compared; 0: they differ; None: too few."""
    _, i, j = np.intersect1d(first.of("ordinal"), second.of("ordinal"), return_indices=True)
    a, b = first.of("order")[i], second.of("order")[j]
    known = (a > 0) & (b > 0)
    samples = int(first.of("samples")[i][known].sum())
    if int(known.sum()) < FEWEST_BATCHES or samples < FEWEST_SAMPLES or len(set(a[known].tolist())) < FEWEST_BATCHES:
        return None
    return int(known.sum()) if bool((a[known] == b[known]).all()) else 0
