"""Finds evaluations that count samples more than once, because their number was made even over the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import Pass, passes
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import Batch, LoaderPass
from rankscope.records.loading import BatchWait

NOTICED = 0.005
"""Share of the samples that are counted twice: metrics are told to a tenth of a percent, and the samples at the start
of a dataset are hardly ever all right or all wrong."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation, on all ranks."""

    passes: tuple[Pass, ...]
    """[r] the pass of each rank."""
    samples: int
    """Read by all ranks together."""
    dataset: int
    """Samples that there are."""


class EvaluationDuplicates(Detector):
    """An evaluation on several ranks counts some samples twice.

    ## What it is
    `DistributedSampler` repeats the first samples until all ranks have the same number, and so do samplers that fill up
    the last batch. In training that is harmless; a metric over them depends on the number of processes.

    ## What shows it
    In one evaluation the ranks together read more samples than the dataset has, each of them fewer than that.

    ## What else looks like it
    Each rank evaluates the whole dataset. Repeated samples that are cut off after gathering (accelerate's
    `gather_for_metrics` does that), which cannot be seen: there, this finding can be left alone.

    ## What to do
    Give each rank its slice without repetition (ranks may differ by one sample: reduce sums and counts), or cut the
    gathered results to the length of the dataset.
    """

    name = "evaluation-duplicates"
    needs = (Batch, LoaderPass)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2 or facts.size < facts.world_size:
            raise CannotExamine("not all of several ranks were seen")
        found = list(_evaluations(facts))
        if not found:
            raise CannotExamine("no evaluation that is split over the ranks was seen from its start to its end")
        wrong = [one for one in found if one.samples > one.dataset]
        if not wrong:
            return
        first = wrong[0]
        extra = first.samples - first.dataset
        mine = first.passes[0]
        sampler = mine.sampler.kind if mine.sampler is not None else "the sampler"
        yield Finding(
            cause=self.name,
            severity="warning" if extra >= NOTICED * first.dataset else "info",
            confidence=0.9,
            title=f"the evaluation of {mine.dataset} counts {extra} of {first.dataset} samples twice: {sampler} "
            f"makes their number even over {facts.size} ranks",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="evaluation",
            component=f"evaluation of {mine.dataset} ({sampler})",
            location=wording.location(mine.place),
            first_step=int(mine.steps[0]),
            last_step=int(wrong[-1].passes[0].steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("samples that all ranks read in one evaluation", float(first.samples), "count"),
                Evidence("samples of the dataset", float(first.dataset), "count"),
                Evidence("share that is counted twice", extra / first.dataset, "share"),
            ),
            next=(
                "evaluate without padding (each rank its own slice) and reduce sums and counts",
                "or cut the gathered predictions to the length of the dataset",
            ),
        )


def _evaluations(facts: Facts) -> Iterator[_Evaluation]:
    """Complete evaluations of which each rank did a part."""
    by_rank = [
        [one for one in passes(facts, position) if one.evaluates and _complete(facts, position, one)]
        for position in range(facts.size)
    ]
    for all_of in zip(*by_rank, strict=False):
        sizes = {one.sampler.dataset_samples if one.sampler is not None else -1 for one in all_of}
        read = [int(one.of("samples").sum()) for one in all_of]
        size = next(iter(sizes))
        alike = len(sizes) == len({one.dataset for one in all_of}) == 1
        # Each rank a part of its own: neither all of it, nor a few batches at which all ranks look.
        if alike and size > 0 and max(read) < size <= sum(read):
            yield _Evaluation(tuple(all_of), sum(read), size)


def _complete(facts: Facts, position: int, one: Pass) -> bool:
    """Whether a pass was seen from its first batch to its end."""
    ordinals = one.of("ordinal")
    if int(ordinals[0]) or len(ordinals) != int(ordinals[-1]) + 1 or not (one.of("samples") > 0).all():
        return False
    waits = facts.rows(BatchWait, position, window=False)
    loader, ended = column(waits, BatchWait, "loader"), column(waits, BatchWait, "ended")
    later = waits[(loader == one.loader) & (waits["time_ns"] > one.end_ns)]
    return bool(len(later)) and bool(column(later[:1], BatchWait, "ended")[0]) and bool(ended.any())
