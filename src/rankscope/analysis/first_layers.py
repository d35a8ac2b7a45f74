"""The first layers with weights of models: how many inputs they add up, and whether a normalisation follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import tensors
from rankscope.analysis.batch_contents import batch_tensors
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.activations import ActivationStat
from rankscope.records.batch_contents import INTO_LAYER


@dataclass(frozen=True, slots=True)
class Layer:
    model: str
    path: str
    fan_in: int
    """Inputs that one of its outputs adds up."""
    normalised: bool
    """A normalisation takes its output."""
    output_variance: float
    """Median over the looks; 0: not known."""


def first_layers(facts: Facts) -> dict[tuple[str, str], Layer]:
    """(model, path) -> those layers whose input was looked at."""
    return facts.once(_first_layers)


def _first_layers(facts: Facts) -> dict[tuple[str, str], Layer]:
    shapes = {
        (model.name, parameter.path): parameter.shape
        for position in range(facts.size)
        for model, parameter in tensors.parameters(facts, position)
    }
    found = {}
    for key in dict.fromkeys((s.source, s.path) for s in batch_tensors(facts) if s.origin == INTO_LAYER):
        shape = shapes.get((key[0], f"{key[1]}.weight"), ())
        if not shape:
            continue
        normalised, variance = _after(facts, *key)
        found[key] = Layer(*key, math.prod(shape[1:]), normalised, variance)
    return found


def _after(facts: Facts, model: str, path: str) -> tuple[bool, float]:
    """(whether the layer that ran next is a normalisation, variance of the layer's output)."""
    for position in range(facts.size):
        pid = facts.ranks[position].pid
        rows = facts.rows(ActivationStat, position, window=False)
        rows = rows[np.argsort(rows["commit"], kind="stable")]
        names = facts.tables.names.get(pid, {})
        mine = [
            i
            for i, (name, of) in enumerate(
                zip(rows["name"].tolist(), column(rows, ActivationStat, "model").tolist(), strict=True)
            )
            if names.get(int(name)) == path and names.get(of) == model
        ]
        if not mine:
            continue
        classes = column(rows, ActivationStat, "class_name").tolist()
        steps = rows["step"].tolist()
        followed = [i + 1 for i in mine if i + 1 < len(steps) and steps[i + 1] == steps[i]]
        after = [names.get(classes[i], "") for i in followed]
        rms, mean = column(rows, ActivationStat, "rms")[mine], column(rows, ActivationStat, "mean")[mine]
        variance = float(np.median(rms.astype(np.float64) ** 2 - mean.astype(np.float64) ** 2))
        return any("Norm" in kind for kind in after), variance
    return False, 0.0
