"""The part of the report about the model in figures, which no finding needs and every reader may want."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """One trained parameter at its last sampled step."""

    path: str
    elements: int
    weight_rms: float | None
    gradient_rms: float | None
    update_ratio: float | None
    """Update per weight of a step, median over the sampled steps."""


@dataclass(frozen=True, slots=True)
class OutputFigures:
    """What one module gave in the last look at it while it trained."""

    path: str
    rms: float | None
    mean: float | None
    least: float | None
    most: float | None
    zeros_share: float | None
    finite: bool


@dataclass(frozen=True, slots=True)
class TensorFigures:
    """One tensor of a batch, as its loader gave it last."""

    source: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    mean: float | None
    std: float | None
    least: float | None
    most: float | None
    zeros_share: float | None
    non_finite_share: float | None


@dataclass(frozen=True, slots=True)
class PredictionFigures:
    """What a model gave to the program that called it."""

    model: str
    units: int
    least: float | None
    most: float | None
    entropy_share: float | None
    """Of softmax over the last dimension: 1 is a guess, 0 is certain."""
    finite: bool


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """How much the gradients of single samples differ."""

    scale: float | None
    """In samples: larger batches than this hardly help. None: the sampled steps only tell `at_least`."""
    at_least: float | None
    batch: int
    """Samples that an optimizer step averages over."""
    steps: int
    """Sampled steps behind the number."""


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Statistics of weights, gradients, outputs, inputs and predictions; taken on the sampled steps."""

    layers: tuple[LayerFigures, ...] = ()
    outputs: tuple[OutputFigures, ...] = ()
    inputs: tuple[TensorFigures, ...] = ()
    classes: int | None = None
    """Different class labels (modulo 16) that were seen."""
    predictions: tuple[PredictionFigures, ...] = ()
    gradient_noise: GradientNoise | None = None
    advice: tuple[str, ...] = ()
    """Remarks on learning rate and batch size; nothing here is wrong."""
