"""Outputs of modules and models on the steps that are looked at."""

import pytest
import torch

from rankscope.capture.tensors.activations import _rows


def train(model, inputs, steps=2, lr=0.0):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs(step) if callable(inputs) else inputs).sum().backward()
        optimizer.step()


def halves(units=8):
    """A linear layer whose first half of units is on for every input of ones, the second half off; then a ReLU."""
    model = torch.nn.Sequential(torch.nn.Linear(4, units, bias=False), torch.nn.ReLU())
    with torch.no_grad():
        model[0].weight.fill_(0.5)[units // 2 :] = -0.5
    return model


def test_sizes_zeros_and_range_of_each_leaf_module(watched):
    seen = watched(lambda: train(halves(), torch.ones(6, 4), steps=1)).of("activation_stat")

    assert [(s.name, s.rms, s.mean, s.least, s.most, s.zeros, s.finite, s.training, s.grad) for s in seen] == [
        ("0", 2.0, 0.0, -2.0, 2.0, 0, 1, 1, 1),
        ("1", pytest.approx(2**0.5), 1.0, 0.0, 2.0, 128, 1, 1, 1),
    ]


def test_units_that_are_dead_or_off_in_every_row_and_for_how_many_looks(watched):
    seen = watched(lambda: train(halves(), torch.ones(6, 4), steps=4)).of("unit_stat")

    relu = [s for s in seen if s.name == "1"]
    assert [(s.units, s.rows, s.dead, s.off, s.lasting_dead, s.lasting_off, s.looks) for s in relu] == [
        (8, 6, 4, 4, 32768, 32768, looks) for looks in (1, 2, 2, 2)
    ]
    assert {(s.dead, s.off) for s in seen if s.name == "0"} == {(0, 4)}


def test_a_unit_that_another_batch_wakes_is_not_dead_for_long(watched):
    def inputs(step):
        return torch.ones(6, 4) * (-1) ** step

    seen = watched(lambda: train(halves(), inputs, steps=2)).of("unit_stat")

    assert [(s.dead, s.lasting_dead) for s in seen if s.name == "1"] == [(4, 32768), (4, 0)]


def test_saturation_of_a_sigmoid(watched):
    def run():
        model = torch.nn.Sequential(torch.nn.Linear(1, 4, bias=False), torch.nn.Sigmoid())
        with torch.no_grad():
            model[0].weight.copy_(torch.tensor([[9.0], [-9.0], [0.1], [0.2]]))
        train(model, torch.ones(3, 1), steps=1)

    (seen,) = [s for s in watched(run).of("activation_stat") if s.name == "1"]

    assert (seen.bounded, seen.saturated) == (1, 128)


def test_outputs_that_are_not_finite_are_said_to_be(watched):
    def run():
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        torch.nn.init.ones_(model[0].weight)
        train(model, torch.tensor([[1.0, float("inf")], [1.0, 1.0]]), steps=1)

    seen = watched(run)

    assert {s.name: s.finite for s in seen.of("activation_stat")} == {"0": 0, "1": 0}
    assert [s.finite for s in seen.of("prediction_stat")] == [0]


def test_channels_of_a_convolution_are_its_units(watched):
    def run():
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.ReLU())
        with torch.no_grad():
            model[0].weight.zero_()
            model[0].bias.copy_(torch.tensor([-1.0, -1.0, 1.0, 1.0, 1.0]))
        train(model, torch.ones(2, 3, 8, 8), steps=1)

    seen = [s for s in watched(run).of("unit_stat") if s.name == "1"]

    assert [(s.units, s.dead) for s in seen] == [(5, 2)]


def test_predictions_of_a_model_that_knows_nothing(watched):
    def run():
        model = torch.nn.Linear(4, 10)
        with torch.no_grad():
            model.weight.zero_()
            model.bias.fill_(0.25)
        train(model, torch.randn(16, 4), steps=1)

    (seen,) = watched(run).of("prediction_stat")

    assert (seen.name, seen.units, seen.rows, seen.entropy, seen.spread, seen.least, seen.most, seen.training) == (
        "Linear", 10, 16, pytest.approx(1.0, abs=1e-6), 0.0, 0.25, 0.25, 1,
    )  # fmt: skip


def test_late_steps_are_looked_at_where_parameters_are(watched):
    seen = watched(lambda: train(halves(), torch.ones(6, 4), steps=34))

    steps = sorted({s.step for s in seen.of("activation_stat")})
    assert steps == sorted({s.step for s in seen.of("weight_stat")})
    assert steps[-1] == 32


def test_nothing_is_looked_at_where_numerics_are_not_wanted(watched):
    seen = watched(lambda: train(halves(), torch.ones(6, 4)), stages=("forward",))

    assert [s for kind in ("activation_stat", "unit_stat", "prediction_stat") for s in seen.of(kind)] == []
    assert seen.of("module") != []


@pytest.mark.parametrize("shape", [(7,), (3, 4), (64, 50, 30, 30), (1, 1, 1, 1), (2, 100_000)])
def test_a_sample_of_rows_is_small_and_keeps_every_unit(shape):
    tensor = torch.ones(shape)

    rows = _rows(tensor, channels_first=False)

    assert rows.shape[1] == (shape[-1] if len(shape) > 1 else 1)
    assert 1 <= rows.shape[0] * rows.shape[1] <= max(1 << 18, shape[-1])
