"""Finds the batch that brought the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.lost_losses import LostLoss, evidence, lost_loss
from rankscope.base.finding import Cost, Finding
from rankscope.records.not_finite import BATCH
from rankscope.records.numerics import LossValue


class NanFromData(Detector):
    """The first loss that is not finite came from a batch: it held NaN or infinity, or nothing to learn from.

    ## What it is
    A sample with broken values, or a batch in which every label is ignored or no object is present, so that the loss
    is a mean over nothing. Averaged over the ranks, one such gradient destroys the parameters of all.

    ## What shows it
    The batch's tensors, and the graph behind the loss: inputs that were not finite before any operation, a loss whose
    targets are all ignored, a single 0 / 0.

    ## What else looks like it
    Finite inputs that an operation turns into NaN (`nan-from-operation`); parameters that were lost the step before.

    ## What to do
    Look at the named batch; filter or repair the sample; where a batch may be empty, divide by `max(count, 1)` or
    leave the batch out on all ranks alike.
    """

    name = "nan-from-data"
    needs = (LossValue,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        lost = lost_loss(facts)
        if lost is None or not lost.from_data:
            return
        numbers = facts.numbers(lost.positions)
        yield Finding(
            cause=self.name,
            severity="critical" if lost.lasting else "warning",
            confidence=0.9,
            title=_title(lost, wording.ranks(facts, lost.positions)),
            ranks=numbers,
            all_ranks=len(numbers) == facts.world_size,
            phase="data",
            component=f"{lost.dataset or 'the batch'}: {lost.what if lost.origin == BATCH else 'no targets'}",
            location=wording.location(lost.place),
            first_step=lost.step,
            last_step=lost.step if not lost.lasting else None,
            cost=Cost(None, None, None),
            evidence=evidence(facts, lost),
            next=(
                "look at that batch: `--on-nan snapshot` saves it, with the state of the random generators",
                "repair or leave out the sample; divide by max(count, 1) where a batch may have nothing to learn from",
            ),
        )


def _title(lost: LostLoss, who: str) -> str:
    of = f" of {lost.dataset}" if lost.dataset else ""
    if lost.origin == BATCH:
        return f"{who}, step {lost.step}: a batch{of} is not finite ({lost.what}: {lost.detail}), and so is the loss"
    return f"{who}, step {lost.step}: a batch{of} has nothing to learn from, and the loss is not finite ({lost.detail})"
