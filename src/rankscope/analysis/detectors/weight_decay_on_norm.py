"""Finds optimizer groups that let weight decay reach normalisation layers although the program sorts its parameters."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tensors import inventory
from rankscope.analysis.wiring import finding, is_matrix, is_norm, listed
from rankscope.base.finding import Evidence, Finding
from rankscope.records.inventory import Optimizer, Parameter
from rankscope.records.numerics import WeightStat

MEANT = 0.8
"""Share of a group without decay that is no matrix: then the group is there for biases and norms, and not for a head or
a backbone with settings of its own."""


class WeightDecayOnNorm(Detector):
    """Weight decay reaches norm weights or biases, though the optimizer has a group without decay for them.

    ## What it is
    The function that sorts parameters into groups misses some: it asks for another class of norm than the model has, or
    for a name that is spelled differently. Decay then pulls scales of normalisation layers towards zero.

    ## What shows it
    An optimizer with a group without decay that holds biases or norms, and norms (or biases of the same kind of layer)
    in a group with decay.

    ## What else looks like it
    One group with the same decay for everything is common practice and not reported. Groups that differ in decay for
    other reasons hold matrices on both sides.

    ## What to do
    Sort by shape (`p.ndim < 2` gets no decay) instead of by class or name.
    """

    name = "weight-decay-on-norm"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stocks = [inventory(facts, position) for position in range(facts.size)]
        if not any(stocks):
            raise CannotExamine("no inventory of the optimizers")
        position, stock = next((p, one) for p, one in enumerate(stocks) if one is not None)
        known = [p for model in stock.models for p in model.parameters if p.trainable]
        for optimizer in stock.optimizers:
            decayed, spared = _sorted(optimizer, known)
            if not spared or sum(not is_matrix(p) for p in spared) < MEANT * len(spared):
                continue
            bad = [p for p in decayed if is_norm(p)] or _biases(decayed, spared)
            if not bad:
                continue
            decay = max(g.weight_decay or 0.0 for g in optimizer.groups)
            where = [p.path for p in bad]
            what = "normalisation weights" if is_norm(bad[0]) else "biases"
            yield finding(
                facts,
                self.name,
                [p for p, one in enumerate(stocks) if one is not None] or [position],
                f"weight decay {decay:g} reaches {len(bad)} {what} ({listed(where)}) in spite of a group without decay",
                severity="warning",
                confidence=0.8 if is_norm(bad[0]) else 0.6,
                component=f"{optimizer.kind}: {listed(where)}",
                phase="optimizer",
                first_step=0,
                evidence=(
                    Evidence("norms or biases in groups with decay", float(len(bad)), "count"),
                    Evidence("parameters in the groups without decay", float(len(spared)), "count"),
                    Evidence("largest weight decay of a group", decay, "per step and learning rate"),
                ),
                next=(
                    "sort by shape: parameters with fewer than two dimensions get `weight_decay=0`",
                    "look at the class or name that the grouping asks for: the model's layers have another one",
                ),
            )


def _sorted(optimizer: Optimizer, known: list[Parameter]) -> tuple[list[Parameter], list[Parameter]]:
    """Its parameters with and without decay."""
    parts: tuple[list[Parameter], list[Parameter]] = [], []
    for index, group in enumerate(optimizer.groups):
        mine = [p for p in known if p.group == f"{optimizer.number}.{index}"]
        if group.weight_decay is not None:
            parts[group.weight_decay == 0].extend(mine)
    return parts


def _biases(decayed: list[Parameter], spared: list[Parameter]) -> list[Parameter]:
    """Biases with decay of a kind of layer whose other biases have none."""
    kinds = {p.owner for p in spared if _is_bias(p)}
    return [p for p in decayed if _is_bias(p) and p.owner in kinds]


def _is_bias(parameter: Parameter) -> bool:
    return parameter.path.rpartition(".")[2] == "bias" and len(parameter.shape) == 1
