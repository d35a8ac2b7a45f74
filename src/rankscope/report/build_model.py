"""The model in figures, from the facts of a run."""

from __future__ import annotations

import math

from rankscope.analysis.facts import Facts
from rankscope.analysis.model_health import model_health
from rankscope.base.guard import swallow
from rankscope.report.model import (
    GradientNoise,
    LayerFigures,
    ModelFigures,
    OutputFigures,
    PredictionFigures,
    TensorFigures,
)

MOST: int = 400
"""Rows of one table; a report of a large model stays readable, and the store has all of them."""


def build_model(facts: Facts) -> ModelFigures | None:
    """None where no statistics were taken, or they cannot be put together: then the rest of the report still stands."""
    try:
        return _build(facts)
    except Exception as error:  # noqa: BLE001  figures that nobody asked for must not cost the findings
        swallow("building the model's figures", error)
        return None


def _build(facts: Facts) -> ModelFigures | None:
    health = model_health(facts)
    if health is None:
        return None
    noise = health.noise
    return ModelFigures(
        layers=tuple(
            LayerFigures(x.path, x.elements, _known(x.weight_rms), _known(x.gradient_rms), _known(x.update_ratio))
            for x in health.layers[:MOST]
        ),
        outputs=tuple(
            OutputFigures(
                x.path, _known(x.rms), _known(x.mean), _known(x.least), _known(x.most), _known(x.zeros), x.finite
            )
            for x in health.outputs[:MOST]
        ),
        inputs=tuple(
            TensorFigures(
                x.source, x.path, x.dtype, x.sizes, _known(x.mean), _known(x.std), _known(x.least), _known(x.most),
                _known(x.zeros), _known(x.non_finite),
            )
            for x in health.inputs[:MOST]
        ),
        classes=health.classes,
        predictions=tuple(
            PredictionFigures(x.model, x.units, _known(x.least), _known(x.most), _known(x.entropy), x.finite)
            for x in health.predictions[:MOST]
        ),
        gradient_noise=GradientNoise(_known(noise.scale), _known(noise.at_least), noise.batch, noise.steps)
        if noise is not None
        else None,
        advice=health.advice,
    )  # fmt: skip


def _known(value: float | None) -> float | None:
    """JSON holds no NaN and no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
