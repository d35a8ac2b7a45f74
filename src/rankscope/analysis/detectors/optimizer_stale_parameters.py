"""Finds optimizers that hold tensors which are no longer the model's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import inventory, weights
from rankscope.analysis.wiring import elements, finding, listed, never_changes
from rankscope.base.finding import Evidence, Finding
from rankscope.records.inventory import Inventory, Optimizer, Parameter
from rankscope.records.numerics import WeightStat
from rankscope.records.training import Forward

FEWEST = 2
"""Sampled steps at which a parameter must be the same to say that it never changes."""
Left = tuple[str, Parameter]
"""(model, parameter) that no optimizer holds."""


class OptimizerStaleParameters(Detector):
    """The optimizer updates tensors that are not the model's.

    ## What it is
    The optimizer was built before the model was sharded (`fully_shard`), converted, copied, or given a new layer. It
    holds the old tensors; nobody holds the new ones.

    ## What shows it
    An optimizer with parameters that no model has and that never get a gradient, beside trainable parameters of the
    model with the same shapes that no optimizer holds and that never change. Also parameters that came into the model
    after the first step and that no optimizer holds.

    ## What else looks like it
    Master weights (DeepSpeed, mixed precision by hand) are foreign too, but the model's parameters follow them. An
    image or a prompt that is optimised gets gradients. A backbone that was simply not given to the optimizer leaves no
    foreign parameters: that is a remark at most.

    ## What to do
    Build the optimizer last: after wrapping, sharding, loading and replacing layers.
    """

    name = "optimizer-stale-parameters"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stocks = {p: stock for p in range(facts.size) if (stock := inventory(facts, p)) is not None}
        if not stocks:
            raise CannotExamine("no inventory of the models")
        position = min(stocks)
        stock = stocks[position]
        left = list(_left(facts, position, stock))
        if not left:
            return
        for optimizer in stock.optimizers:
            foreign = _idle(facts, position, optimizer)
            shapes = [shape for group in optimizer.groups for shape in group.foreign_shapes]
            lost = [(model, p) for model, p in left if any(_fits(p.shape, shape) for shape in shapes)]
            if foreign and lost:
                yield self._stale(facts, sorted(stocks), stock, optimizer, foreign, lost, left)
                return
        partly = {m.name for m in stock.models if any(p.group for p in m.parameters)}
        left = [(model, p) for model, p in left if model in partly]
        if not left:
            return  # nobody trains this model, or not with an optimizer
        first = facts.tables.inventories[facts.ranks[position].pid][0]
        known = {(m.name, p.path) for m in first.models for p in m.parameters}
        models = {m.name for m in first.models}
        late = [(m, p) for m, p in left if m in models and (m, p.path) not in known]
        yield self._left_out(facts, sorted(stocks), stock, late or left, bool(late))

    def _stale(  # noqa: PLR0917  what it says
        self, facts: Facts, positions: list[int], stock: Inventory, optimizer: Optimizer, foreign: int,
        lost: list[Left], left: list[Left],
    ) -> Finding:  # fmt: skip
        model = lost[0][0]
        mine = [p for m in stock.models if m.name == model for p in m.parameters if p.trainable]
        without = [p for name, p in left if name == model]
        everything = len(without) == len(mine)
        paths = [p.path for p in (without if everything else [p for _, p in lost])]
        what = f"any of the {len(mine)} parameters" if everything else listed(paths)
        return finding(
            facts,
            self.name,
            positions,
            f"{optimizer.kind} does not hold {what} of {model}, but {foreign} tensors that are no longer in it:"
            " they never change",
            severity="critical",
            confidence=0.95,
            component=f"{optimizer.kind}: {listed(paths)}",
            phase="optimizer",
            first_step=0,
            evidence=(
                Evidence(
                    f"trainable parameters of {model} that no optimizer holds and that never change",
                    float(len(without)), "count",
                ),
                Evidence("parameters of the optimizer without a gradient that no model has", float(foreign), "count"),
                Evidence(f"trainable parameters of {model}", float(len(mine)), "count"),
            ),
            next=(
                "build the optimizer after the model is wrapped, sharded, moved and complete",
                "where a layer is replaced, give its parameters to the optimizer: `optimizer.add_param_group`",
            ),
        )  # fmt: skip

    def _left_out(
        self, facts: Facts, positions: list[int], stock: Inventory, left: list[Left], late: bool
    ) -> Finding:
        model = left[0][0]
        mine = [p for name, p in left if name == model]
        paths = [p.path for p in mine]
        held = [p for m in stock.models if m.name == model for p in m.parameters if p.trainable]
        when = "came into the model after the optimizer was built" if late else "could learn"
        return finding(
            facts,
            self.name,
            positions,
            f"{len(mine)} parameters of {model} ({listed(paths)}) {when}, but no optimizer holds them",
            severity="warning" if late else "info",
            confidence=0.8 if late else 0.4,
            component=listed(paths),
            phase="optimizer",
            first_step=int(min(s.steps[0] for key, s in weights(facts).items() if key == (model, paths[0]))),
            evidence=(
                Evidence("trainable parameters that no optimizer holds", float(len(mine)), "count"),
                Evidence("elements in them, of the trainable ones", elements(mine) / elements(held), "share"),
            ),
            next=(
                "give them to the optimizer, or set `requires_grad = False` where they are meant to stay",
            ),
        )  # fmt: skip


def _left(facts: Facts, position: int, stock: Inventory) -> Iterator[Left]:
    """Trainable parameters of models with an optimizer, or that are the only model, which nobody holds or changes."""
    for model in stock.models:
        if len(stock.models) > 1 and not _is_trained(facts, position, model.name):
            continue
        for parameter in model.parameters:
            series = weights(facts).get((model.name, parameter.path))
            if not parameter.trainable or parameter.group or series is None or position not in series.positions:
                continue
            if len(series.steps) >= FEWEST and never_changes(series):
                yield model.name, parameter


def _is_trained(facts: Facts, position: int, model: str) -> bool:
    """Whether a model has been called with autograd on."""
    return model in facts.once(_trained, position)


def _trained(facts: Facts, position: int) -> set[str]:
    rows = facts.rows(Forward, position, window=False)
    rows = rows[(column(rows, Forward, "grad") > 0) & (column(rows, Forward, "training") > 0)]
    pid = facts.ranks[position].pid
    return {facts.tables.name(pid, id) for id in np.unique(column(rows, Forward, "model")).tolist()}


def _idle(facts: Facts, position: int, optimizer: Optimizer) -> int:
    """Parameters of an optimizer that no model has, and that had neither a gradient nor a change at any sample."""
    front = f"{optimizer.kind}#{optimizer.number}.groups["
    mine = [s for (model, path), s in weights(facts).items() if not model and path.startswith(front)]
    mine = [s for s in mine if position in s.positions and len(s.steps) >= FEWEST]
    return sum(not s.of(position, "gradient").any() and never_changes(s) for s in mine)


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether one may have taken the other's place: the same, or for another number of outputs."""
    return shape == other or (len(shape) > 1 and len(shape) == len(other) and shape[1:] == other[1:])
