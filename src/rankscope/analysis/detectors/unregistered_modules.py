"""Finds modules that a model runs without knowing them."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.wiring import finding, odd_parts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.numerics import WeightStat
from rankscope.records.wiring import UNREGISTERED


class UnregisteredModules(Detector):
    """Modules in a plain list or dictionary run in forward, but the model does not know them.

    ## What it is
    `self.layers = [nn.Linear(...), ...]`: only `nn.ModuleList`, `nn.ModuleDict` and plain attributes are registered.
    `model.parameters()` leaves these modules out, and so do the optimizer, `to()`, `state_dict()` and DDP.

    ## What shows it
    A list, tuple or dictionary of a module of the model holds modules or parameters that are not among the model's,
    that get gradients, and that no optimizer holds.

    ## What else looks like it
    A teacher or a loss network that is kept in a list to hide it: it gets no gradient, or is in evaluation mode, or has
    an optimizer of its own.

    ## What to do
    `nn.ModuleList` or `nn.ModuleDict`; for single parameters `nn.ParameterList`.
    """

    name = "unregistered-modules"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        # In evaluation mode somebody has set it so by hand: it was hidden on purpose. What an optimizer holds learns.
        parts = [odd for odd in odd_parts(facts, UNREGISTERED) if odd.training and odd.held < odd.parameters]
        for model, path in dict.fromkeys((odd.model, odd.path) for odd in parts):
            mine = [odd for odd in parts if (odd.model, odd.path) == (model, path)]
            first = mine[0]
            lost = first.parameters - first.held
            yield finding(
                facts,
                self.name,
                [odd.position for odd in mine],
                f"{model}.{path} holds modules ({first.text}) that are not registered: {lost} parameters with gradients"
                " never learn",
                severity="critical",
                confidence=0.9,
                component=path,
                phase="forward",
                first_step=min(odd.step for odd in mine),
                evidence=(
                    Evidence(f"parameters in {path} with gradients that no optimizer holds", float(lost), "count"),
                    Evidence("elements of the parameters in it", float(first.elements), "count"),
                ),
                next=(
                    f"keep them in an `nn.ModuleList` or `nn.ModuleDict`: `self.{path.rpartition('.')[2]}`",
                    "build the optimizer, and DDP, after that",
                ),
            )
