"""Finds ranks that train on the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.data_parallel import must_differ
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import Pass, training_passes
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import Batch

FEWEST = 3
"""Different batches that must be equal on both ranks: of two, one may be a warm-up that all ranks do alike."""
FEWEST_LABELS = 8
"""The same where only indices and labels are equal: labels of a small batch may be equal by chance."""
NEARLY_ALL = 0.9
"""Share of the compared batches that are equal; a loader that is not split gives the same ones each time."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Two ranks that read the same."""

    positions: tuple[int, int]
    passed: Pass
    equal: int
    compared: int
    contents: bool
    """Their contents are equal; else their indices and labels, while augmentation makes the rest differ."""
    first_step: int


class DuplicateDataAcrossRanks(Detector):
    """Several ranks train on the same samples at the same time.

    ## What it is
    The data is not split between the ranks: an `IterableDataset` that does not ask for its rank, a loader without
    `DistributedSampler`, a seed that all ranks share. Their gradients are equal, and averaging them gains nothing.

    ## What shows it
    Fingerprints of batches that are equal on ranks whose gradients are averaged, batch for batch; or, where
    augmentation changes the contents, equal sample indices together with equal labels, of datasets with the same
    attributes.

    ## What else looks like it
    Ranks that compute one forward together (tensor, sequence or pipeline parallel) must read the same batch: who
    communicates inside of the forward is not compared. An evaluation that each rank does as a whole. One fixed batch
    for a benchmark: there, batches do not differ from each other.

    ## What to do
    `DistributedSampler`, or `split_dataset_by_node`; in an `IterableDataset` take every world_size-th sample, counted
    over ranks and workers.
    """

    name = "duplicate-data-across-ranks"
    needs = (Batch,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.world_size < 2:
            raise CannotExamine("one rank: nobody else reads the data")
        pairs = must_differ(facts)
        if not pairs:
            raise CannotExamine("no ranks that average gradients and compute their forwards alone were seen")
        found = [same for pair in sorted(pairs) if (same := _same(facts, *pair)) is not None]
        if not found:
            return
        positions = tuple(sorted({p for same in found for p in same.positions}))
        first = found[0]
        sampler = first.passed.sampler
        how = "is not split by rank" if sampler is None or not sampler.replicas else "is split as if for another rank"
        what = "the same batches" if first.contents else "the same samples"
        yield Finding(
            cause=self.name,
            severity="critical",
            confidence=0.97 if first.contents else 0.9,
            title=f"{wording.ranks(facts, positions)} train on {what} at the same time: {first.passed.dataset} {how}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=first.passed.dataset,
            location=wording.location(first.passed.place),
            first_step=min(same.first_step for same in found),
            last_step=int(first.passed.steps[-1]),
            cost=Cost(None, None, None),
            evidence=tuple(
                Evidence(
                    f"batches that are equal on {wording.ranks(facts, same.positions)}, of {same.compared} compared"
                    + ("" if same.contents else " (indices and labels)"),
                    float(same.equal),
                    "count",
                    facts.numbers(same.positions),
                )
                for same in found[:4]
            ),
            next=(
                "give the loader a DistributedSampler, or take every world_size-th sample in the dataset",
                "in an IterableDataset count over ranks and loader workers",
            ),
        )


def _same(facts: Facts, first: int, second: int) -> _Same | None:
    """What two ranks read alike, if it is nearly all of what they trained on."""
    equal = compared = 0
    labels_equal = labels_compared = 0
    prints: set[int] = set()
    labels: set[int] = set()
    at: Pass | None = None
    one_dataset: bool | None = None
    for mine, theirs in _paired(training_passes(facts, first), training_passes(facts, second)):
        at = at or mine
        one_dataset = _one_dataset(mine, theirs) if one_dataset is None else one_dataset
        _, i, j = np.intersect1d(mine.of("ordinal"), theirs.of("ordinal"), return_indices=True)
        a_prints, b_prints = mine.of("fingerprint")[i], theirs.of("fingerprint")[j]
        known = (a_prints > 0) & (b_prints > 0)
        equal += int((a_prints == b_prints)[known].sum())
        compared += int(known.sum())
        prints.update(a_prints[known].tolist())
        a_labels, b_labels = mine.of("integers")[i], theirs.of("integers")[j]
        orders = mine.of("order")[i]
        known = (a_labels > 0) & (b_labels > 0) & (orders > 0)
        labels_equal += int(((a_labels == b_labels) & (orders == theirs.of("order")[j]))[known].sum())
        labels_compared += int(known.sum())
        labels.update(a_labels[known].tolist())
    if at is None:
        return None
    step = int(at.steps[0])
    if len(prints) >= FEWEST and equal >= NEARLY_ALL * compared:
        return _Same((first, second), at, equal, compared, True, step)
    if one_dataset is False:
        return None
    if len(labels) >= max(FEWEST_LABELS, labels_compared / 2) and labels_equal >= NEARLY_ALL * labels_compared:
        return _Same((first, second), at, labels_equal, labels_compared, False, step)
    return None


def _one_dataset(mine: Pass, theirs: Pass) -> bool | None:
    """Whether the ranks hold equal datasets; of different ones the samples only bear the same numbers. None: not known.

    As they begin: what a dataset counts or keeps meanwhile makes equal ones differ.
    """
    prints = [one.sampler.dataset_print for one in (mine, theirs) if one.sampler is not None]
    return prints[0] == prints[1] if len(prints) == 2 and all(prints) else None


def _paired(mine: tuple[Pass, ...], theirs: tuple[Pass, ...]) -> Iterator[tuple[Pass, Pass]]:
    """The k-th training pass of two ranks over the same dataset."""
    for dataset in dict.fromkeys(one.dataset for one in mine):
        yield from zip(
            [one for one in mine if one.dataset == dataset],
            [one for one in theirs if one.dataset == dataset],
            strict=False,
        )
