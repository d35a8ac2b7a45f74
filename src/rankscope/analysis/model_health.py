"""The model in figures: weights, gradients, updates and outputs layer by layer, inputs, predictions, and advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.batch_contents import Seen, batch_tensors
from rankscope.analysis.divergence import LARGE_UPDATE
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_noise import Noise, gradient_noise
from rankscope.analysis.layers import Layer, layers, matrices, rates
from rankscope.analysis.reading import counts, labels
from rankscope.analysis.tables import column
from rankscope.records.activations import ActivationStat, PredictionStat

SMALL_UPDATE: Final = 1e-5
"""Update per weight of a step below which ten thousand steps change a tenth of the weights; usual are 1e-4 to 1e-2."""
FEWEST_LOOKS: Final = 5
FAR: Final = 4.0
"""Times by which the batch must differ from the noise scale before another one is worth a try: the scale itself is
known within a factor of two."""


@dataclass(frozen=True, slots=True)
class LayerHealth:
    """One trained parameter at its last sampled step."""

    path: str
    elements: int
    weight_rms: float
    gradient_rms: float | None
    update_ratio: float | None
    """Update per weight, median over the sampled steps."""


@dataclass(frozen=True, slots=True)
class OutputHealth:
    """What one module gave in the last look at it, while it trained."""

    path: str
    rms: float
    mean: float
    least: float
    most: float
    zeros: float
    finite: bool


@dataclass(frozen=True, slots=True)
class PredictionHealth:
    """What a model gave to the program that called it."""

    model: str
    least: float
    most: float
    entropy: float | None
    """Of softmax over the last dimension, as a share of the largest one."""
    units: int
    finite: bool


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """Everything of one run."""

    layers: tuple[LayerHealth, ...]
    outputs: tuple[OutputHealth, ...]
    inputs: tuple[Seen, ...]
    """The newest look at each tensor that a loader gave for training, on the first rank that has it."""
    classes: int | None
    """Different class labels (modulo 16) that were seen; None: none were."""
    predictions: tuple[PredictionHealth, ...]
    noise: Noise | None
    advice: tuple[str, ...]


def model_health(facts: Facts) -> ModelHealth | None:
    """None where no statistics of tensors were taken."""
    found = tuple(_layer(one) for one in layers(facts) if len(one.steps))
    inputs = _inputs(facts)
    if not found and not inputs:
        return None
    noise = gradient_noise(facts)
    return ModelHealth(
        found, _outputs(facts), inputs, _classes(facts), _predictions(facts), noise,
        tuple(filter(None, (_about_rate(facts), _about_batch(noise)))),
    )  # fmt: skip


def _layer(layer: Layer) -> LayerHealth:
    ratios = _ratios(layer)
    gradients = layer.gradient[np.isfinite(layer.gradient)]
    return LayerHealth(
        layer.path,
        layer.numel,
        float(layer.size[-1]),
        float(gradients[-1]) if len(gradients) else None,
        float(np.median(ratios)) if len(ratios) else None,
    )


def _ratios(layer: Layer) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = layer.update / layer.size
    return np.asarray(ratios[np.isfinite(ratios)], np.float64)


def _about_rate(facts: Facts) -> str:
    """What update per weight says of the learning rate: a remark, no finding."""
    per_layer = [ratios[1:] for layer in matrices(facts) if len(ratios := _ratios(layer)) > FEWEST_LOOKS]
    if not per_layer:
        return ""
    middle = float(np.median([np.median(ratios) for ratios in per_layer]))
    _, rate = rates(facts)
    now = f"learning rate {rate[-1]:g}: " if len(rate) else ""
    told = f"{now}a step changes the weights by {_share(middle)} (median of the layers and the sampled steps)"
    if middle >= LARGE_UPDATE:
        return f"{told}, a hundred times what is usual: try a lower one"
    if 0 < middle <= SMALL_UPDATE:
        return f"{told}, far below the usual 0.01 to 1 %: try a rate ten times higher if the loss falls slowly"
    return f"{told}; 0.01 to 1 % is usual"


def _about_batch(noise: Noise | None) -> str:
    if noise is None:
        return ""
    if noise.scale is None:
        told = (
            f"the gradient noise scale is above {_rounded(noise.at_least):,} samples ({noise.steps} sampled steps tell "
            f"no more), a step averages over {noise.batch:,}"
        )
        larger = noise.at_least > FAR * noise.batch
        return f"{told}: batches up to that size save almost as many steps as they are larger" if larger else told
    scale = f"the gradient noise scale is about {_rounded(noise.scale):,} samples, a step averages over {noise.batch:,}"
    if noise.batch * FAR < noise.scale:
        return f"{scale}: batches up to that size save almost as many steps as they are larger"
    if noise.batch > FAR * noise.scale:
        return f"{scale}: smaller batches learn nearly as much a step"
    return f"{scale}: the batch size fits"


def _rounded(value: float) -> int:
    """To one digit: more is not known."""
    digits = max(0, len(str(max(1, int(value)))) - 1)
    return max(1, int(round(value, -digits)))


def _share(value: float) -> str:
    return f"{value * 100:.2g} %"


def _inputs(facts: Facts) -> tuple[Seen, ...]:
    newest: dict[tuple[str, str], Seen] = {}
    for seen in batch_tensors(facts):
        if seen.loader and seen.phase != "evaluation":
            known = newest.get((seen.source, seen.path))
            if known is None or (seen.position == known.position and seen.time_ns > known.time_ns):
                newest[seen.source, seen.path] = seen
    return tuple(newest.values())


def _classes(facts: Facts) -> int | None:
    together = sum(
        (counts(rows).sum(axis=0) for position in range(facts.size) for rows in labels(facts, position).values()),
        np.zeros(16, np.int64),
    )
    return int((together > 0).sum()) or None


def _outputs(facts: Facts) -> tuple[OutputHealth, ...]:
    if not facts.size:
        return ()
    rows = facts.rows(ActivationStat, 0, window=False)
    rows = rows[column(rows, ActivationStat, "training") == 1]
    names = facts.tables.names.get(facts.ranks[0].pid, {})
    last = {name: i for i, name in enumerate(rows["name"].tolist())}
    values = {f: column(rows, ActivationStat, f) for f in ("rms", "mean", "least", "most", "zeros", "finite")}
    return tuple(
        OutputHealth(
            names.get(name, ""), float(values["rms"][i]), float(values["mean"][i]), float(values["least"][i]),
            float(values["most"][i]), float(values["zeros"][i]) / 255, bool(values["finite"][i]),
        )
        for name, i in last.items()
    )  # fmt: skip


def _predictions(facts: Facts) -> tuple[PredictionHealth, ...]:
    if not facts.size:
        return ()
    rows = facts.rows(PredictionStat, 0, window=False)
    rows = rows[column(rows, PredictionStat, "training") == 1]
    names = facts.tables.names.get(facts.ranks[0].pid, {})
    last = {name: i for i, name in enumerate(rows["name"].tolist())}
    found = []
    for name, i in last.items():
        entropy = float(column(rows, PredictionStat, "entropy")[i])
        found.append(
            PredictionHealth(
                names.get(name, ""),
                float(column(rows, PredictionStat, "least")[i]),
                float(column(rows, PredictionStat, "most")[i]),
                entropy if np.isfinite(entropy) else None,
                int(column(rows, PredictionStat, "units")[i]),
                bool(column(rows, PredictionStat, "finite")[i]),
            )
        )
    return tuple(found)
