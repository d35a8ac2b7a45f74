"""The weights that learn, layer by layer from input to output: sizes of weights, gradients and updates over the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Key, Series, gradients, parameters, raw_gradients, weights
from rankscope.records.activations import ActivationStat
from rankscope.records.inventory import Parameter
from rankscope.records.training import OptimizerStep

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TABLES = ("Embedding", "EmbeddingBag")
"""Owners of tables: a step touches the rows of its batch only."""
UNBORN = 0.05
"""Of the size that a layer's weights have after a usual initialisation (1 / sqrt(inputs)): smaller ones begin at zero,
or nearly so, on purpose (the last layer of a branch, LoRA's second matrix); any update is large beside them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One trained parameter on one rank, with what its sampled steps have in common."""

    model: str
    parameter: Parameter
    position: int
    """Of the rank that it was read on."""
    steps: Ints
    """[k] sampled steps, rising."""
    size: Floats
    """[k] root mean square of the weights before the step."""
    update: Floats
    """[k] root mean square of their change in the step; NaN: not known."""
    changed: Floats
    """[k] share of the elements that changed."""
    gradient: Floats
    """[k] root mean square of the gradient as the optimizer got it; NaN: there was none."""
    raw: Floats
    """[k] the same as backward left it."""
    gradient_zeros: Floats
    """[k] share of the gradient's elements that are zero."""

    @property
    def path(self) -> str:
        return self.parameter.path

    @property
    def numel(self) -> int:
        return math.prod(self.parameter.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it mixes inputs into outputs: not a bias, a scale, or a table."""
        return len(self.parameter.shape) >= 2 and self.parameter.owner not in TABLES

    @property
    def starts_small(self) -> bool:
        """Whether it began at zero or close to it."""
        inputs = max(1, self.numel // max(1, self.parameter.shape[0]))
        return not len(self.size) or self.size[0] < UNBORN / math.sqrt(inputs)


def layers(facts: Facts) -> tuple[Layer, ...]:
    """Every parameter that an optimizer holds and of which there are statistics, in the order of its use in forward."""
    return facts.once(_layers)


def matrices(facts: Facts) -> tuple[Layer, ...]:
    """Those that mix inputs into outputs and did not begin at zero."""
    return tuple(layer for layer in layers(facts) if layer.is_matrix and not layer.starts_small)


def rates(facts: Facts) -> tuple[Ints, Floats]:
    """(steps, learning rate): of the first optimizer of the first rank that has a rate, one a step."""
    return facts.once(_rates)


def _rates(facts: Facts) -> tuple[Ints, Floats]:
    rows = facts.rows(OptimizerStep, 0, window=False)
    if len(rows):
        rows = rows[column(rows, OptimizerStep, "optimizer") == column(rows, OptimizerStep, "optimizer").min()]
    rows = rows[np.isfinite(column(rows, OptimizerStep, "lr"))]
    steps, last = np.unique(rows["step"][::-1], return_index=True)
    return steps.astype(np.int64), np.asarray(column(rows, OptimizerStep, "lr")[::-1][last], np.float64)


def _layers(facts: Facts) -> tuple[Layer, ...]:
    known = weights(facts)
    given, raw = gradients(facts), raw_gradients(facts)
    found: dict[Key, Layer] = {}
    for position in range(facts.size):
        for model, parameter in parameters(facts, position):
            key = model.name, parameter.path
            series = known.get(key)
            if series is None or key in found or position not in series.positions:
                continue
            if parameter.trainable and parameter.group:
                found[key] = _layer(model.name, parameter, position, series, given.get(key), raw.get(key))
    order = _order(facts)
    places = {key: i for i, key in enumerate(found)}
    used = {key: order.get((layer.position, key[0], key[1].rpartition(".")[0])) for key, layer in found.items()}
    # What is called only as part of a larger module takes the place of its neighbour in the inventory.
    last: dict[str, int] = {}
    ranks: dict[Key, tuple[str, int, int]] = {}
    for key in found:
        at = used[key]
        last[key[0]] = at if at is not None else last.get(key[0], -1)
        ranks[key] = key[0], last[key[0]], places[key]
    return tuple(found[key] for key in sorted(found, key=ranks.__getitem__))


def _order(facts: Facts) -> dict[tuple[int, str, str], int]:
    """(rank, model, module) -> place in the order in which leaf modules were first called."""
    found: dict[tuple[int, str, str], int] = {}
    for position in range(facts.size):
        rows = facts.rows(ActivationStat, position, window=False)
        pid = facts.ranks[position].pid
        for name, model in zip(rows["name"].tolist(), column(rows, ActivationStat, "model").tolist(), strict=True):
            key = position, facts.tables.name(pid, model), facts.tables.name(pid, name)
            found.setdefault(key, len(found))
    return found


def _layer(  # noqa: PLR0917  its fields
    model: str, parameter: Parameter, position: int, series: Series, given: Series | None, raw: Series | None
) -> Layer:
    compared = series.of(position, "compared") > 0
    return Layer(
        model=model,
        parameter=parameter,
        position=position,
        steps=series.steps,
        size=series.of(position, "rms"),
        update=np.where(compared, series.of(position, "update"), np.nan),
        changed=np.where(compared, series.of(position, "changed") / 255, np.nan),
        gradient=_at(series.steps, given, position, "rms"),
        raw=_at(series.steps, raw, position, "rms"),
        gradient_zeros=_at(series.steps, given, position, "zeros") / 255,
    )


def _at(steps: Ints, series: Series | None, position: int, field: str) -> Floats:
    """[k] a field of another series at these steps; NaN where it has none."""
    found = np.full(len(steps), np.nan)
    if series is not None and position in series.positions:
        at = {step: i for i, step in enumerate(series.steps.tolist())}
        values = series.of(position, field)
        for i, step in enumerate(steps.tolist()):
            if step in at:
                found[i] = float(values[at[step]])
    return found
