"""Finds losses that get probabilities where they want logits or log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.loss_calls import Call, by_line, loss_calls
from rankscope.analysis.stacks import Place
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import LOG_PROBABILITIES, PROBABILITIES, UNKNOWN, LossCall

WANTED = {
    "cross_entropy": "logits",
    "nll_loss": "log-probabilities",
    "kl_div": "log-probabilities",
    "binary_cross_entropy_with_logits": "logits",
}
NEARLY_ALL = 0.9
"""Of the calls of a line: a single one may have such rows by chance (a first step, a row of one-hot numbers)."""
FEWEST_ROWS = 2
"""A single row that adds up to one is no proof."""


class DoubleSoftmax(Detector):
    """The loss gets probabilities where it wants logits.

    ## What it is
    `cross_entropy` and `binary_cross_entropy_with_logits` take logits and apply a softmax or sigmoid themselves. On
    probabilities they apply it a second time: the loss stays above a floor (1.46 for ten classes), and gradients are
    small. `nll_loss` and `kl_div` take log-probabilities; on probabilities they have no minimum where one is wanted.

    ## What shows it
    Every row of the input is between 0 and 1 and adds up to 1, on each sampled step; or the autograd graph shows the
    softmax or sigmoid that gave the input.

    ## What else looks like it
    Log-probabilities in `cross_entropy`: a second log-softmax changes nothing. Similarities between 0 and 1 do not
    add up to 1. Calls without gradient (metrics) are left out.

    ## What to do
    Give the loss what the last linear layer gives; take the softmax only where probabilities are shown.
    """

    name = "double-softmax"
    needs = (LossCall,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        calls = tuple(call for call in loss_calls(facts) if call.function in WANTED and call.grad)
        if not calls:
            raise CannotExamine("no loss function of torch that takes logits was called")
        for (function, place), same in by_line(calls).items():
            wrong = [call for call in same if _wrong(call)]
            rows = sum(max(1, call.sizes[0][0] if call.sizes[0] else 1) for call in wrong)
            if wrong and len(wrong) >= NEARLY_ALL * len(same) and rows >= FEWEST_ROWS:
                yield self._finding(facts, function, place, wrong, len(same))

    def _finding(
        self, facts: Facts, function: str, place: Place | None, wrong: list[Call], calls: int
    ) -> Finding:
        proven = all(call.rows == PROBABILITIES for call in wrong)
        shown = sum(call.after_softmax for call in wrong)
        twice = all(call.rows == LOG_PROBABILITIES for call in wrong)
        what = "the logarithm of a softmax of probabilities" if twice else "probabilities"
        last = wrong[-1]
        positions = tuple(sorted({call.position for call in wrong}))
        evidence = [
            Evidence(f"of {calls} calls looked at had rows of such numbers", len(wrong) / calls, "share"),
        ]
        if last.known:
            evidence.append(Evidence("smallest element of the input of the last one", last.least, ""))
            evidence.append(Evidence("largest element", last.most, ""))
        if shown:
            evidence.append(Evidence("calls whose graph shows a softmax or sigmoid before", float(shown), "count"))
        return Finding(
            cause=self.name,
            severity="critical" if proven or twice or function != "cross_entropy" else "warning",
            confidence=0.97 if proven else 0.85,
            title=f"{function} gets {what} where it wants {WANTED[function]}{wording.at(place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=function,
            location=wording.location(place),
            first_step=min(call.step for call in wrong),
            last_step=max(call.step for call in wrong),
            cost=Cost(None, None, None),
            evidence=tuple(evidence),
            next=(
                f"give {function} the {WANTED[function]}: remove the softmax or sigmoid at the end of the model",
                "apply it only where probabilities are shown or compared",
            ),
        )


def _wrong(call: Call) -> bool:
    """Whether an input is not what the function wants, by its values or by its graph."""
    if call.function == "cross_entropy":
        if call.classes < 2:
            return False
        # A log-softmax more does no harm, unless probabilities went into the first one.
        return call.rows == PROBABILITIES or call.after_softmax
    if call.function == "nll_loss":
        return call.rows == PROBABILITIES or call.after_softmax
    if call.function == "kl_div":
        return call.rows == PROBABILITIES
    return call.after_softmax and call.rows in (PROBABILITIES, UNKNOWN)
