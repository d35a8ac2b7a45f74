"""Finds models of which a large part cannot learn, though nothing shows that this was meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Series, inventory, weights
from rankscope.analysis.wiring import elements, finding, is_matrix, is_norm, listed, loss_falls, odd_parts
from rankscope.analysis.wording import percent
from rankscope.base.finding import Evidence, Finding, Severity
from rankscope.records.inventory import Model, Parameter
from rankscope.records.numerics import WeightStat
from rankscope.records.training import Forward, Module
from rankscope.records.wiring import CUT_BY_CHECKPOINT, LOADED

FEWEST_MATRICES = 2
"""A model with a single matrix is a probe of something."""
FEWEST_SAMPLES = 2
LARGE = 0.25
"""Share of the trainable elements without a gradient that is a large part: auxiliary heads and poolers that a task does
not use are smaller."""
MOSTLY_LOADED = 0.5
"""Share of a model's elements that came from a state dict: then its frozen weights know something."""


class FrozenParameters(Detector):
    """The layers that a model learns with are frozen, or cut off from the loss.

    ## What it is
    `requires_grad` was switched off for too much (all but the normalisation layers), or a `.detach()`, a conversion to
    numpy or a copy in forward cuts the gradient of layers that the optimizer holds.

    ## What shows it
    No matrix of a model can learn, only norms or biases, and its weights were not loaded from anywhere; or parameters
    that need a gradient, that run with autograd on and that an optimizer holds, never get one.

    ## What else looks like it
    A frozen backbone with a head that trains, LoRA, adapters and prompts train matrices. Tuning only biases or norms
    begins from loaded weights, and its loss falls. A part under `torch.no_grad()`, or one that is not called, was left
    out on purpose.

    ## What to do
    Print which parameters have `requires_grad`; after the first backward, which have no `.grad`.
    """

    name = "frozen-parameters"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stocks = {p: stock for p in range(facts.size) if (stock := inventory(facts, p)) is not None}
        if not stocks:
            raise CannotExamine("no inventory of the models")
        position = min(stocks)
        for model in stocks[position].models:
            if any(p.group for p in model.parameters):
                yield from self._frozen(facts, model, sorted(stocks))
                yield from self._cut_off(facts, model, position, sorted(stocks))

    def _frozen(self, facts: Facts, model: Model, positions: Sequence[int]) -> Iterator[Finding]:
        matrices = [p for p in model.parameters if is_matrix(p)]
        learning = [p for p in model.parameters if p.trainable]
        if len(matrices) < FEWEST_MATRICES or not learning or any(p.trainable for p in matrices):
            return
        total = elements(model.parameters)
        loaded = max((odd.elements for odd in odd_parts(facts, LOADED) if odd.model == model.name), default=0)
        falls = loss_falls(facts, positions[0])
        if loaded >= MOSTLY_LOADED * total and falls is not False:
            return
        severity: Severity = "critical" if loaded < MOSTLY_LOADED * total and falls is not True else "warning"
        what = "norms" if all(is_norm(p) for p in learning) else "biases and norms"
        frozen = [p.path for p in matrices]
        yield finding(
            facts,
            self.name,
            positions,
            f"only {what} of {model.name} can learn: {percent(1 - elements(learning) / total)} is frozen,"
            f" with all {len(matrices)} weight matrices",
            severity=severity,
            confidence=0.9,
            component=listed(frozen),
            phase="optimizer",
            first_step=0,
            evidence=(
                Evidence("elements that can learn", elements(learning) / total, "share"),
                Evidence("frozen weight matrices", float(len(matrices)), "count"),
                Evidence("elements that came from a state dict", loaded / total, "share"),
            ),
            next=(
                f"set `requires_grad = True` for {listed(frozen)}",
                "if this is meant, load the weights that are to be kept before freezing them",
            ),
        )

    def _cut_off(self, facts: Facts, model: Model, position: int, positions: Sequence[int]) -> Iterator[Finding]:
        all_of = weights(facts)
        held = [p for p in model.parameters if p.trainable and p.group]
        cut = [p for p in held if _never(all_of.get((model.name, p.path)), position)]
        called = _called_with_autograd(facts, model, position)
        checkpoints = odd_parts(facts, CUT_BY_CHECKPOINT)
        cut = [
            p for p in cut
            if p.path.rpartition(".")[0] in called and not any(odd.holds(model.name, p.path) for odd in checkpoints)
        ]  # fmt: skip
        total = elements(held)
        if not any(is_matrix(p) for p in cut) or elements(cut) < LARGE * total or len(cut) == len(held):
            return
        loaded = max((odd.elements for odd in odd_parts(facts, LOADED) if odd.model == model.name), default=0)
        if loaded >= MOSTLY_LOADED * elements(model.parameters):
            return
        yield self._about_cut(facts, model, cut, total, positions)

    def _about_cut(
        self, facts: Facts, model: Model, cut: Sequence[Parameter], total: int, positions: Sequence[int]
    ) -> Finding:
        share = elements(cut) / total
        paths = [p.path for p in cut]
        return finding(
            facts,
            self.name,
            positions,
            f"{percent(share)} of what the optimizer holds of {model.name} never gets a gradient ({listed(paths)})",
            severity="warning",
            confidence=0.8,
            component=listed(paths),
            phase="backward",
            first_step=0,
            evidence=(
                Evidence("trainable elements that never get a gradient", share, "share"),
                Evidence("parameters that never get a gradient", float(len(cut)), "count"),
            ),
            next=(
                "look in forward for `.detach()`, `.data`, `.numpy()` or `torch.tensor(...)` after these layers",
                "if they are to be frozen, set `requires_grad = False` and leave them out of the optimizer",
            ),
        )


def _never(series: Series | None, position: int) -> bool:
    """Whether a parameter that an optimizer holds had no gradient at any of its sampled steps."""
    if series is None or position not in series.positions:
        return False
    held = series.of(position, "held") > 0
    return bool(held.sum() >= FEWEST_SAMPLES and not series.of(position, "gradient")[held].any())


def _called_with_autograd(facts: Facts, model: Model, position: int) -> set[str]:
    """Paths of modules of a model that were called while autograd was on."""
    pid = facts.ranks[position].pid
    rows = facts.rows(Module, position, window=False)
    rows = rows[column(rows, Module, "grad") > 0]
    found = {facts.tables.name(pid, id) for id in np.unique(rows["name"]).tolist()}
    forwards = facts.rows(Forward, position, window=False)
    forwards = forwards[column(forwards, Forward, "grad") > 0]
    names = {facts.tables.name(pid, id) for id in np.unique(column(forwards, Forward, "model")).tolist()}
    return found | ({""} if model.name in names else set())
