"""The model in figures, from made-up trainings."""

from __future__ import annotations

from rankscope.report.build_model import build_model
from rankscope.testing.known_runs import BASE
from rankscope.testing.silent_reading import READING
from rankscope.testing.trainings import Training


def test_layers_come_with_size_gradient_and_update():
    model = build_model(Training().facts())

    assert model is not None
    assert [layer.path for layer in model.layers] == [
        "embed.weight", "layers.0.weight", "layers.0.bias", "norm.weight", "norm.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    assert all(layer.elements > 0 and layer.weight_rms > 0 and layer.update_ratio > 0 for layer in model.layers)
    assert any("learning rate" in text for text in model.advice)


def test_classes_that_were_seen_are_counted():
    assert build_model(READING.facts()).classes == 10


def test_nothing_is_said_where_nothing_was_read():
    assert build_model(BASE.build().facts) is None
