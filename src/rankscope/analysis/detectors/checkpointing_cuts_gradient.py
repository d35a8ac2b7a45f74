"""Finds activation checkpointing that loses the gradient of what it wraps."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tensors import Series, weights
from rankscope.analysis.wiring import Odd, finding, odd_parts
from rankscope.base.finding import Evidence, Finding, Severity
from rankscope.records.numerics import WeightStat
from rankscope.records.wiring import CUT_BY_CHECKPOINT


class CheckpointingCutsGradient(Detector):
    """A checkpointed block gets no gradient, because none of its inputs needs one.

    ## What it is
    `checkpoint(block, x, use_reentrant=True)` runs the block without autograd and connects it through its inputs. Where
    no input needs a gradient (a frozen embedding, raw data), what comes out has no graph, and the parameters inside
    never get one.

    ## What shows it
    Such calls with autograd on, parameters inside that could learn, and no gradient for them at any sampled step.

    ## What else looks like it
    A frozen block under the same call has nothing to lose; a block that is also called without checkpointing learns.

    ## What to do
    `use_reentrant=False`; or make the input need a gradient (`model.enable_input_require_grads()`).
    """

    name = "checkpointing-cuts-gradient"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        all_of = weights(facts)
        cut: list[tuple[Odd, bool]] = []
        for odd in odd_parts(facts, CUT_BY_CHECKPOINT):
            inside = [series for key, series in all_of.items() if odd.holds(*key) and odd.position in series.positions]
            seen = [series for series in inside if series.of(odd.position, "held").any()]
            if not any(_has_gradient(series, odd.position) for series in seen):
                cut.append((odd, bool(seen)))
        if not cut:
            return
        first, sure = cut[0]
        paths = list(dict.fromkeys(odd.path for odd, _ in cut))
        count = sum(odd.parameters for odd, _ in cut if odd.position == first.position)
        severity: Severity = "critical" if sure else "warning"
        yield finding(
            facts,
            self.name,
            [odd.position for odd, _ in cut],
            f"checkpointing cuts the gradient of {' and '.join(paths[:2])}{' and more' * (len(paths) > 2)}:"
            f" {count} parameters never learn",
            severity=severity,
            confidence=0.95 if sure else 0.8,
            component=", ".join(paths[:8]),
            place=first.place,
            phase="forward",
            first_step=min(odd.step for odd, _ in cut),
            evidence=(
                Evidence("parameters in blocks whose checkpointed inputs need no gradient", float(count), "count"),
                Evidence("blocks called so", float(len(paths)), "count"),
            ),
            next=(
                "pass `use_reentrant=False` to the checkpoint function",
                "or let the inputs need a gradient: `x.requires_grad_()`, `model.enable_input_require_grads()`",
            ),
        )


def _has_gradient(series: Series, position: int) -> bool:
    return bool(series.of(position, "gradient").any())
