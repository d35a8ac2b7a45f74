"""Finds the operation that made the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.lost_losses import LostLoss, evidence, lost_loss
from rankscope.base.finding import Cost, Finding
from rankscope.records.not_finite import GRADIENT, OPERATION, PARAMETER
from rankscope.records.numerics import LossValue


class NanFromOperation(Detector):
    """The first value that is not finite came out of an operation with finite inputs.

    ## What it is
    The logarithm of zero, a division by zero, the root of zero in backward (whose derivative is infinite there), an
    overflow. A `where` hides such a branch in forward, but not in backward.

    ## What shows it
    The graph behind the first loss that is not finite: the deepest operation whose inputs were finite. Where the
    parameters were lost already, the loss of the step before was finite and its gradient was not: then the operation
    with an infinite derivative that all lost parameters lie behind.

    ## What else looks like it
    A batch that is not finite (`nan-from-data`); updates that are far too large (`learning-rate-too-high`).

    ## What to do
    Use the fused form (`log_softmax`, `logsumexp`, `binary_cross_entropy_with_logits`); clamp or add an epsilon before
    the operation; with `where`, replace the input of the hidden branch as well.
    """

    name = "nan-from-operation"
    needs = (LossValue,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        lost = lost_loss(facts)
        if lost is None or lost.from_data:
            return
        numbers = facts.numbers(lost.positions)
        yield Finding(
            cause=self.name,
            severity="critical" if lost.lasting else "warning",
            confidence=0.9 if lost.origin == OPERATION else 0.75 if lost.what else 0.5,
            title=_title(lost, wording.ranks(facts, lost.positions)),
            ranks=numbers,
            all_ranks=len(numbers) == facts.world_size,
            phase="backward" if lost.origin in (GRADIENT, PARAMETER) else "forward",
            component=_component(lost),
            location=wording.location(lost.place),
            first_step=lost.first_step,
            last_step=None if lost.lasting else lost.step,
            cost=Cost(None, None, None),
            evidence=evidence(facts, lost),
            next=(
                "use the fused form of the operation, clamp its input, or add an epsilon before it",
                "torch.autograd.set_detect_anomaly(True) for a few steps names the line of the forward",
            ),
        )


def _component(lost: LostLoss) -> str:
    if lost.what and lost.module:
        return f"{lost.what} after {lost.module}"
    if lost.what:
        return lost.what
    return f"gradient of {lost.module}" if lost.module else "an operation of the loss"


def _title(lost: LostLoss, who: str) -> str:
    if lost.origin in (GRADIENT, PARAMETER):
        why = f"; {lost.what} stands behind them and has an infinite derivative" if lost.what else ""
        return (
            f"{who}: the gradient of step {lost.first_step} is not finite though its loss was: {lost.affected} of "
            f"{lost.parameters} parameters are lost{why}"
        )
    why = f": {lost.detail}" if lost.detail else ""
    return f"{who}, step {lost.step}: {_component(lost)} makes the loss not finite{why}"
