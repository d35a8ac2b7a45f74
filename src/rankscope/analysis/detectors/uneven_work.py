"""Finds work that is unevenly dealt to the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import timeline, wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector
from rankscope.analysis.facts import Facts, Floats, Ints
from rankscope.analysis.lateness import MORE_WORK, elements_per_step, lateness
from rankscope.analysis.rank_correlation import rank_correlation
from rankscope.base.finding import Evidence, Finding
from rankscope.records.training import Forward

OF_INPUT = (timeline.FORWARD, timeline.BACKWARD)
"""Phases whose length depends on the input."""
CORRELATION = 0.6
"""Rank correlation between the difference in work and the difference in time; chance gives 0 within 2/sqrt(steps)."""
OFTEN = 0.2
"""Share of the steps in which the inputs must differ: the last batch of an epoch is shorter on some rank of any run."""
STEADY = 0.9
"""Share of the steps in which one rank has most, from which on that is its share of the data and not chance."""


class UnevenWork(Detector):
    """Ranks get different amounts of work, and the one with less waits for the one with more.

    ## What it is
    Sequences of different length, batches of different size, or another number of micro-batches: no machine is slow,
    the work is unevenly dealt.

    ## What shows it
    The elements of the inputs differ between ranks step by step, and the compute times differ with them.

    ## What else looks like it
    A slow device (`slow-device`): it is slower with the same inputs.

    ## What to do
    Deal by length: bucket samples, cap the tokens of a batch instead of its samples, sort within a window and give
    neighbours to the ranks.
    """

    name = "uneven-work"
    needs = (Forward,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nobody to compare with")
        work = np.array([elements_per_step(facts, p) for p in range(facts.size)])
        time = lateness(facts).compute
        uneven = (work.max(axis=0) - work.min(axis=0)) / np.maximum(1, work.mean(axis=0))
        difference = work - work.mean(axis=0)
        in_time = time - time.mean(axis=0)
        correlation = rank_correlation(difference.ravel(), in_time.ravel())
        if np.mean(uneven > MORE_WORK) < OFTEN or correlation < max(CORRELATION, 2 / np.sqrt(len(facts.steps))):
            return
        of_input = np.array([_of_input(facts, p) for p in range(facts.size)])
        gain = facts.gain(lambda position, durations: _balanced(facts, position, durations, of_input))
        if gain < MATERIAL:
            return
        heaviest = np.argmax(work, axis=0)
        counts = np.bincount(heaviest, minlength=facts.size)
        steady = counts.max() >= STEADY * len(heaviest)
        positions = (int(np.argmax(counts)),) if steady else tuple(range(facts.size))
        who = wording.ranks(facts, positions)
        how = "has the most work at nearly every step" if steady else "the slow rank moves from step to step"
        ratio = float(np.median(work.max(axis=0) / np.maximum(1, work.min(axis=0))))
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=min(0.95, 0.5 + correlation / 2),
            title=f"uneven work over ranks ({who}): {how}, the others wait",
            ranks=facts.numbers(positions),
            all_ranks=not steady,
            phase="forward",
            component="batches: how samples are dealt to the ranks",
            location=None,
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, gain * facts.span_ns, gain),
            evidence=(
                Evidence("input elements of the rank with most over that with least (median)", ratio, "x"),
                Evidence("rank correlation between difference in work and difference in compute time", correlation, ""),
                Evidence(
                    f"steps in which the inputs differ by more than {wording.percent(MORE_WORK)}",
                    float(np.mean(uneven > MORE_WORK)),
                    "share",
                ),
            ),
            next=(
                "bucket samples by length, or fill batches by tokens instead of samples",
                "deal neighbours in length to the ranks at the same step",
            ),
        )


def _of_input(facts: Facts, position: int) -> Floats:
    """Time of a rank in each step in the phases whose length depends on the input."""
    mask = facts.work(position) & np.isin(facts.phases(position), OF_INPUT)
    return facts.per_step(position, mask & (facts.timelines[position].segments["detail"] == 0))


def _balanced(facts: Facts, position: int, durations: Ints, compute: Floats) -> Ints:
    """The rank's compute segments scaled so that each step's compute is the mean over ranks."""
    own = compute[position]
    factor = np.where(own > 0, compute.mean(axis=0) / np.maximum(1, own), 1.0)
    names = facts.phases(position)
    mask = facts.work(position) & np.isin(names, OF_INPUT)
    at = np.flatnonzero(mask)
    starts = facts.timelines[position].segments["start"][at]
    step = np.clip(np.searchsorted(facts.attribution.start, starts, side="right") - 1, 0, len(factor) - 1)
    durations[at] = (durations[at] * factor[step]).astype(np.int64)
    return durations
