"""The model in figures, as rows of text that terminal and HTML page share."""

from __future__ import annotations

from rankscope.report.model import ModelFigures
from rankscope.views.quantities import count_text, share_text, three_digits

UNKNOWN = "–"
LAYER_HEAD = ["parameter", "elements", "weights", "gradient", "update / weight"]
OUTPUT_HEAD = ["module", "size", "mean", "least", "most", "zeros", ""]
INPUT_HEAD = ["batch", "type and shape", "mean", "std", "least", "most", "zeros", "not finite"]
PREDICTION_HEAD = ["model", "outputs", "least", "most", "entropy", ""]


def layer_rows(model: ModelFigures) -> list[list[str]]:
    """One a trained parameter, from input to output."""
    return [
        [x.path, count_text(x.elements), _number(x.weight_rms), _number(x.gradient_rms), _share(x.update_ratio)]
        for x in model.layers
    ]


def output_rows(model: ModelFigures) -> list[list[str]]:
    """One a module that calls no other."""
    return [
        [x.path, _number(x.rms), _number(x.mean), _number(x.least), _number(x.most), _share(x.zeros_share),
         "" if x.finite else "not finite"]
        for x in model.outputs
    ]  # fmt: skip


def input_rows(model: ModelFigures) -> list[list[str]]:
    """One a tensor of the batches."""
    return [
        [f"{x.source} {x.path}", f"{x.dtype}{list(x.shape)}", *map(_number, (x.mean, x.std, x.least, x.most)),
         _share(x.zeros_share), _share(x.non_finite_share)]
        for x in model.inputs
    ]  # fmt: skip


def prediction_rows(model: ModelFigures) -> list[list[str]]:
    """One a model."""
    return [
        [x.model, count_text(x.units), _number(x.least), _number(x.most), _share(x.entropy_share),
         "" if x.finite else "not finite"]
        for x in model.predictions
    ]  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.2e}" if value and not 1e-3 <= abs(value) < 1e5 else three_digits(value)


def _share(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return share_text(value) if not 0 < value < 1e-3 else f"{value * 100:.1e} %"
