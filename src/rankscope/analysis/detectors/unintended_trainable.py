"""Finds parameters that change although they were declared frozen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tensors import Key, gradients, inventory, weights
from rankscope.analysis.wiring import Odd, finding, listed, odd_parts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.inventory import Inventory, Parameter
from rankscope.records.numerics import WeightStat
from rankscope.records.wiring import FREEZE_WITHOUT_EFFECT

FEWEST = 2
"""Sampled steps in which it changes."""


class UnintendedTrainable(Detector):
    """Parameters that should stay as they are change.

    ## What it is
    Code that freezes a part of the model never runs (it stands in an overridden `train()` that nobody calls); or
    `requires_grad` was switched off while the parameter's last gradient was still there, so that the optimizer goes on
    with that gradient, with momentum, or with weight decay.

    ## What shows it
    A module whose `train()` sets `requires_grad = False`, none of whose settings says otherwise, none of whose
    parameters is frozen, and which changes. Or parameters without `requires_grad` that an optimizer changes by a
    gradient that is zero or always the same.

    ## What else looks like it
    A GAN that switches `requires_grad` off and on within a step gets new gradients each time. Teachers and target
    networks that follow the model are held by no optimizer.

    ## What to do
    Freeze in the constructor, or call `model.train()`; build the optimizer from
    `[p for p in model.parameters() if p.requires_grad]`, and clear gradients with `set_to_none=True`.
    """

    name = "unintended-trainable"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not any(inventory(facts, position) for position in range(facts.size)):
            raise CannotExamine("no inventory of the models")
        yield from self._never_frozen(facts)
        yield from self._changed_all_the_same(facts)

    def _never_frozen(self, facts: Facts) -> Iterator[Finding]:
        parts = odd_parts(facts, FREEZE_WITHOUT_EFFECT)
        for model, path in dict.fromkeys((odd.model, odd.path) for odd in parts):
            mine = [odd for odd in parts if (odd.model, odd.path) == (model, path)]
            first = mine[0]
            inside = [key for key in weights(facts) if first.holds(*key)]
            steps = _steps_of_change(facts, first, inside)
            if not steps or any(not p.trainable for p in _parameters_of(facts, first)):
                continue
            name = model if path == model else f"{model}.{path}"
            yield finding(
                facts,
                self.name,
                [odd.position for odd in mine],
                f"{name} freezes parameters in train(), which has no effect: all {first.parameters} of them train",
                severity="warning",
                confidence=0.85,
                component=listed([key[1] for key in inside]) if path == model else path,
                place=first.place,
                phase="optimizer",
                first_step=steps[0],
                evidence=(
                    Evidence("parameters of the module that are frozen", 0.0, "count"),
                    Evidence("sampled steps in which they change", float(len(steps)), "count"),
                ),
                next=(
                    "call `model.train()` before the training loop: it is what freezes them",
                    "or freeze them in the constructor",
                ),
            )

    def _changed_all_the_same(self, facts: Facts) -> Iterator[Finding]:
        found: dict[Key, list[int]] = {}
        positions: set[int] = set()
        for position in range(facts.size):
            for key, steps in _changed_while_frozen(facts, position):
                found.setdefault(key, steps)
                positions.add(position)
        if not found:
            return
        paths = [path for _, path in found]
        steps = sorted(set().union(*found.values()))
        yield finding(
            facts,
            self.name,
            sorted(positions),
            f"the optimizer changes {len(found)} frozen parameters ({listed(paths)}): they still have old gradients",
            severity="critical",
            confidence=0.9,
            component=listed(paths),
            phase="optimizer",
            first_step=steps[0],
            evidence=(
                Evidence("parameters without requires_grad that the optimizer changes", float(len(found)), "count"),
                Evidence("sampled steps in which they change", float(len(steps)), "count"),
            ),
            next=(
                "set `p.grad = None` where `requires_grad` is switched off",
                "build the optimizer anew, from the parameters that train",
            ),
        )


def _steps_of_change(facts: Facts, odd: Odd, keys: list[Key]) -> list[int]:
    steps: set[int] = set()
    for key in keys:
        series = weights(facts)[key]
        if odd.position in series.positions:
            moved = (series.of(odd.position, "changed") > 0) & (series.of(odd.position, "held") > 0)
            steps.update(series.steps[moved].tolist())
    return sorted(steps)


def _parameters_of(facts: Facts, odd: Odd) -> list[Parameter]:
    stock = inventory(facts, odd.position)
    return [p for m in (stock.models if stock else ()) for p in m.parameters if odd.holds(m.name, p.path)]


def _changed_while_frozen(facts: Facts, position: int) -> Iterator[tuple[Key, list[int]]]:
    stocks = facts.tables.inventories.get(facts.ranks[position].pid, ())
    ever = {key for stock in stocks for key, p in _by_key(stock).items() if p.trainable}
    for stock, until in zip(stocks, [*(s.step for s in stocks[1:]), np.inf], strict=True):
        for key, parameter in _by_key(stock).items():
            series = weights(facts).get(key)
            # One that never had a gradient of backward gets it from the program: evolution strategies, for one.
            if parameter.trainable or key not in ever or series is None or position not in series.positions:
                continue
            moved = (series.of(position, "changed") > 0) & (series.of(position, "gradient") > 0)
            moved &= (series.of(position, "held") > 0) & (series.steps >= stock.step) & (series.steps < until)
            steps = series.steps[moved].tolist()
            # In the step of the inventory it may have been frozen after the optimizer's step.
            for some in (steps, steps[1:] if steps and steps[0] == stock.step else []):
                if len(some) >= FEWEST and _is_old(facts, key, position, some):
                    yield key, some
                    break


def _is_old(facts: Facts, key: Key, position: int, steps: list[int]) -> bool:
    """Whether the gradient is the same at all these steps, or nothing but zeros."""
    series = gradients(facts).get(key)
    if series is None or position not in series.positions:
        return False
    at = np.isin(series.steps, steps)
    prints = series.of(position, "fingerprint")[at]
    return bool(at.any()) and len(set(prints.tolist())) == 1


def _by_key(stock: Inventory) -> dict[Key, Parameter]:
    return {(model.name, p.path): p for model in stock.models for p in model.parameters}
