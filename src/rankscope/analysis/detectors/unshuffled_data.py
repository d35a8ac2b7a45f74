"""Finds training data that comes class by class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.orders import UNMIXED, Mixing, mixing
from rankscope.analysis.reading import Pass, by_source, counts, labels, training_passes
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import BatchLabels

FEWEST_BATCHES = 6
"""With labels: of fewer, a class that happens to come often looks like an order."""


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    passes: list[Pass]
    mixing: Mixing
    distinct: float


class UnshuffledData(Detector):
    """Training batches follow the order of the labels.

    ## What it is
    The dataset is stored class by class and the loader does not shuffle: the model sees one class at a time and forgets
    the others.

    ## What shows it
    Labels within a batch are much more alike than labels of the whole run, neighbouring batches are as well, and the
    sample indices rise (or there are none: a stream).

    ## What else looks like it
    A sampler that takes a few classes for each batch (metric and few-shot learning): its indices do not rise, and
    neighbouring batches have nothing in common. Data that is stored well mixed and read in its order. A stream of few
    classes. A change of the distribution at one moment is `class-shift`.

    ## What to do
    `shuffle=True`, or `DistributedSampler(shuffle=True)`; of a stream a large shuffle buffer, or shards that are mixed
    when they are written.
    """

    name = "unshuffled-data"
    needs = (BatchLabels,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        examined = 0
        found: list[_Found] = []
        for position in range(facts.size):
            for all_of in by_source(training_passes(facts, position)).values():
                known = [labels(facts, position).get((one.loader, one.number)) for one in all_of]
                rows = [part for part in known if part is not None]
                mixed = mixing(counts(np.concatenate(rows))) if rows else None
                if mixed is None or mixed.batches < FEWEST_BATCHES:
                    continue
                examined += 1
                ordered = all(one.in_dataset_order or not (one.of("order") > 0).any() for one in all_of)
                if ordered and mixed.ordered:
                    distinct = float(np.median(column(np.concatenate(rows), BatchLabels, "distinct")))
                    found.append(_Found(position, all_of, mixed, distinct))
        if not examined:
            raise CannotExamine("no training loader with class labels gave enough batches")
        if not found:
            return
        first = found[0]
        passed = first.passes[0]
        positions = tuple(sorted({f.position for f in found}))
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.95 if first.mixing.within < UNMIXED / 2 else 0.85,
            title=f"{passed.dataset} is read class by class: two labels of a batch differ "
            f"{wording.percent(first.mixing.within)} as often as any two labels of the run",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=passed.dataset,
            location=wording.location(passed.place),
            first_step=int(passed.steps[0]),
            last_step=int(first.passes[-1].steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence(
                    "chance that two labels of a batch differ, over that of any two", first.mixing.within, "x",
                    facts.numbers(positions),
                ),
                Evidence("the same for two labels of neighbouring batches", first.mixing.neighbours, "x"),
                Evidence("classes in a batch, in the median", first.distinct, "count"),
                Evidence("batches with labels that were compared", float(first.mixing.batches), "count"),
            ),
            next=(
                "shuffle=True in the DataLoader, or a shuffling DistributedSampler",
                "of a stream: a shuffle buffer that is larger than a class",
            ),
        )  # fmt: skip
