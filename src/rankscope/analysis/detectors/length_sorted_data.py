"""Finds training batches that come sorted by length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.orders import FEWEST_PAIRS, Runs, runs
from rankscope.analysis.rank_correlation import rank_correlation
from rankscope.analysis.reading import Pass, training_passes
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import Batch
from rankscope.records.numerics import LossValue

VARIES = 1.2
"""The longest tenth of the batches over the shortest tenth: with less there is nothing to sort."""


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    passed: Pass
    runs: Runs
    spread: float


class LengthSortedData(Detector):
    """Training batches follow the length of their samples.

    ## What it is
    Samples are grouped by length to save padding, and the groups come sorted, long to short, again and again: the loss
    goes up and down with the length, and neighbouring steps see samples of one kind.

    ## What shows it
    Padded lengths of successive batches: nearly all go the same way, down or up, until the next group begins.

    ## What else looks like it
    Groups of similar length in random order, which is how it should be: there, lengths go up as often as down. A
    curriculum that grows from short to long once; data whose lengths are all alike.

    ## What to do
    Shuffle the batches after they have been grouped; sort only within a batch.
    """

    name = "length-sorted-data"
    needs = (Batch,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        examined = 0
        found = []
        for position in range(facts.size):
            for one in training_passes(facts, position):
                lengths = one.of("length")[_unbroken(one)]
                known = lengths[lengths > 0]
                if len(known) <= FEWEST_PAIRS:
                    continue
                examined += 1
                low, high = (float(x) for x in np.percentile(known, (10, 90)))
                seen = runs(lengths)
                if high >= VARIES * max(low, 1.0) and seen.sorted and (seen.turns or one.in_dataset_order):
                    found.append(_Found(position, one, seen, high / max(low, 1.0)))
        if not examined:
            raise CannotExamine(f"no training loader gave more than {FEWEST_PAIRS} batches of a known length")
        if not found:
            return
        first = found[0]
        positions = tuple(sorted({f.position for f in found}))
        sampler = first.passed.sampler.kind if first.passed.sampler is not None else ""
        way = "long to short" if first.runs.falling else "short to long"
        again = ", again and again" if first.runs.turns else ""
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"batches of {first.passed.dataset} come sorted by length, {way}{again}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=first.passed.dataset if first.passed.in_dataset_order or not sampler else sampler,
            location=wording.location(first.passed.place),
            first_step=int(first.passed.steps[0]),
            last_step=int(found[-1].passed.steps[-1]),
            cost=Cost(None, None, None),
            evidence=tuple(_evidence(facts, first)),
            next=(
                "shuffle the batches after samples have been grouped by length",
                "sort within a batch only",
            ),
        )


def _unbroken(one: Pass) -> slice:
    """The batches at the start of a pass of which each one was looked at."""
    ordinals = one.of("ordinal")
    gaps = np.flatnonzero((np.diff(ordinals) != 1) | (one.of("length")[1:] == 0))
    return slice(0, int(gaps[0]) + 1 if len(gaps) else len(ordinals))


def _evidence(facts: Facts, first: _Found) -> Iterator[Evidence]:
    ranks = facts.numbers((first.position,))
    yield Evidence("successive batches whose length changes the same way", first.runs.same_way, "share", ranks)
    yield Evidence("such pairs of batches", float(first.runs.pairs), "count", ranks)
    yield Evidence("the longest tenth over the shortest tenth", first.spread, "x", ranks)
    losses = facts.rows(LossValue, first.position, window=False)
    steps, values = losses["step"].astype(np.int64), np.ascontiguousarray(losses["a"]).view(np.float64)
    lengths = dict(zip(first.passed.steps.tolist(), first.passed.of("length").tolist(), strict=True))
    pairs = [(lengths[s], v) for s, v in zip(steps.tolist(), values.tolist(), strict=True) if lengths.get(s)]
    if len(pairs) > FEWEST_PAIRS:
        table = np.array(pairs)
        related = rank_correlation(table[:, 0], table[:, 1])
        if related is not None:
            yield Evidence("rank correlation of the loss with the length", float(related), "", ranks)
