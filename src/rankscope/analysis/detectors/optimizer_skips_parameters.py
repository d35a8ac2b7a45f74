"""Finds parameters that get gradients and that an optimizer holds, but that it does not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Series, gradients, inventory, raw_gradients, weights
from rankscope.analysis.wiring import elements, finding, listed
from rankscope.base.finding import Evidence, Finding
from rankscope.records.inventory import Optimizer, Parameter
from rankscope.records.numerics import GradientStat, WeightStat
from rankscope.records.training import OptimizerStep

SPACING = {"float64": 2.3e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.9e-3}
"""Distance of two neighbouring numbers, relative to their size."""
CLEAR = 8.0
"""How many times that distance an update has to be expected to be, so that rounding cannot have taken it away from all
elements of a sample."""
FEWEST_STEPS = 3
"""Sampled steps without a change, at the end of the run."""
FEWEST_ELEMENTS = 16
"""In parameters that are skipped: single numbers may rest at the bound of a clamp."""


@dataclass(frozen=True, slots=True)
class _Skipped:
    parameter: Parameter
    since: int
    steps: int
    gradient: float
    expected: float


class OptimizerSkipsParameters(Detector):
    """Parameters with gradients that the optimizer holds are not updated.

    ## What it is
    An optimizer (or a wrapper around one) that updates a copy instead of the parameter, that remembers from an earlier
    step which parameters have no gradient, or whose in-place operation goes nowhere for parameters that are not
    contiguous.

    ## What shows it
    From some step to the end: a gradient that is finite and not zero, a learning rate above zero, and not one element
    that changes. An update of the expected size would have been many times the spacing of the number format.

    ## What else looks like it
    Updates that are rounded away (`update-lost-to-precision`), a learning rate of zero for the group, steps that the
    loss scaler leaves out, and replicas whose update arrives from another rank a moment later. `p.grad = None` for a
    layer, from the beginning on, is a way to freeze it.

    ## What to do
    Compare a parameter before and after `optimizer.step()`; use torch's own optimizer on the same gradients.
    """

    name = "optimizer-skips-parameters"
    needs = (WeightStat, GradientStat, OptimizerStep)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stocks = {p: stock for p in range(facts.size) if (stock := inventory(facts, p)) is not None}
        if not stocks:
            raise CannotExamine("no inventory of the models")
        position = min(stocks)
        stock = stocks[position]
        for optimizer in stock.optimizers:
            held = [
                (model.name, p) for model in stock.models for p in model.parameters
                if p.trainable and p.group.startswith(f"{optimizer.number}.")
            ]  # fmt: skip
            skipped = [one for model, p in held if (one := _skipped(facts, position, optimizer, model, p)) is not None]
            if sum(min(elements([one.parameter]), FEWEST_ELEMENTS) for one in skipped) < FEWEST_ELEMENTS:
                continue
            yield self._about(facts, sorted(stocks), optimizer, skipped, len(held))

    def _about(
        self, facts: Facts, positions: list[int], optimizer: Optimizer, skipped: list[_Skipped], held: int
    ) -> Finding:
        paths = [one.parameter.path for one in skipped]
        since = min(one.since for one in skipped)
        all_of = "all " if len(skipped) == held else ""
        return finding(
            facts,
            self.name,
            positions,
            f"{optimizer.kind} leaves {all_of}{len(skipped)} of {held} parameters unchanged in spite of their gradients"
            f" ({listed(paths)})",
            severity="critical",
            confidence=0.9,
            component=f"{optimizer.kind}: {listed(paths)}",
            phase="optimizer",
            first_step=since,
            evidence=(
                Evidence("parameters with a gradient that do not change", float(len(skipped)), "count"),
                Evidence("sampled steps, to the end of the run", float(max(one.steps for one in skipped)), "count"),
                Evidence("root mean square of such a gradient", max(one.gradient for one in skipped), ""),
                Evidence("expected change, in spacings of the format", min(one.expected for one in skipped), "x"),
            ),
            next=(
                "look where the optimizer writes: `p.data.contiguous()`, `.clone()`, `.reshape()` may be copies",
                "look for a decision that is made once, such as which parameters have a gradient",
            ),
        )


def _skipped(
    facts: Facts, position: int, optimizer: Optimizer, model: str, parameter: Parameter
) -> _Skipped | None:
    key = model, parameter.path
    series = weights(facts).get(key)
    spacing = SPACING.get(parameter.dtype)
    rates = _rates(facts, position, optimizer, parameter)
    if series is None or position not in series.positions or spacing is None or not rates:
        return None
    given = _sizes(series.steps, gradients(facts).get(key), position)
    # What backward left: a wrapper may hide it from the optimizer.
    hidden = np.isnan(given)
    size = np.where(hidden, _sizes(series.steps, raw_gradients(facts).get(key), position), given)
    rate = np.array([rates.get(step, 0.0) for step in series.steps.tolist()])
    # Adam's update is about the rate whatever the gradient is, SGD's is in proportion to it.
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = rate * np.minimum(size, 1.0) / (spacing * series.of(position, "rms"))
        counts = _eligible(series, position, hidden) & (size > 0) & (expected > CLEAR)
    still = np.asarray((series["changed"] == 0).all(axis=0))
    if not counts.any() or not still[counts][-1]:
        return None
    # Some updates arrive after the optimizer's step: it must be the same at all samples from there on.
    prints = series.of(position, "fingerprint")
    begin = max([0, *(np.flatnonzero(~still) + 1).tolist(), *(np.flatnonzero(np.diff(prints)) + 1).tolist()])
    tail = counts & (np.arange(len(still)) >= begin)
    if tail.sum() < FEWEST_STEPS or (hidden[tail].any() and not begin):
        return None  # `p.grad = None` from the beginning is a way to freeze
    at = np.flatnonzero(tail)
    return _Skipped(
        parameter, int(series.steps[at[0]]), int(tail.sum()), float(size[at].max()), float(expected[at].min())
    )  # fmt: skip


def _sizes(steps: NDArray[np.int64], series: Series | None, position: int) -> NDArray[np.float64]:
    """[k] root mean square of a gradient at these steps; NaN where there is none, 0 where it is not finite."""
    found = np.full(len(steps), np.nan)
    if series is not None and position in series.positions:
        common, here, there = np.intersect1d(steps, series.steps, return_indices=True)
        if len(common):
            finite = series.of(position, "finite")[there] > 0
            found[here] = np.where(finite, series.of(position, "rms")[there], 0.0)
    return found


def _eligible(series: Series, position: int, hidden: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[k] whether an optimizer that holds it stepped, with its gradient unless that was hidden from it, and both sides
    of the step were seen."""
    good = (series.of(position, "held") > 0) & (series.of(position, "compared") > 0)
    good &= hidden | (series.of(position, "gradient") > 0)
    return np.asarray(good & (series.of(position, "zeros") < 255))


def _rates(facts: Facts, position: int, optimizer: Optimizer, parameter: Parameter) -> dict[int, float]:
    """Step -> learning rate of a parameter's group: the first group's, in the proportion of the inventory."""
    first, own = optimizer.groups[0].lr, optimizer.groups[int(parameter.group.partition(".")[2])].lr
    if own is None or first is None or (first > 0 and own == 0):
        return {}
    factor = own / first if first else 1.0
    rows = facts.rows(OptimizerStep, position, window=False)
    rows = rows[column(rows, OptimizerStep, "optimizer") == optimizer.number]
    return {
        step: rate * factor
        for step, rate in zip(rows["step"].tolist(), column(rows, OptimizerStep, "lr").tolist(), strict=True)
    }
