"""Where a loss that is not finite came from, on real graphs."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from rankscope.records.not_finite import BATCH, GRADIENT, NOTHING_TO_LEARN, OPERATION, PARAMETER


def training(loss_of, steps=1, model=None, lr=0.1):
    """A function that trains a small model on `loss_of(model, inputs)`."""

    def run():
        torch.manual_seed(0)
        net = model or nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(net, torch.randn(6, 4)).backward()
            optimizer.step()

    return run


def zeros(model, x):
    return (model(x) * 0).log().mean()


def division(model, x):
    return (model(x) / (x[:, :1] * 0)).sum()


def overflow(model, x):
    return (model(x) * 1e6).exp().sum()


def negative_root(model, x):
    return (-model(x).square() - 1).sqrt().mean()


def power(model, x):
    return ((model(x) * 0) ** -1.5).sum()


@pytest.mark.parametrize(
    ("loss_of", "operation"),
    [(zeros, "log"), (division, "div"), (overflow, "exp"), (negative_root, "sqrt"), (power, "pow")],
)
def test_the_operation_that_made_it_is_named(watched, loss_of, operation):
    (row,) = watched(training(loss_of)).of("not_finite")

    assert (row.origin, row.name) == (OPERATION, operation)


def test_what_is_masked_before_it_can_do_harm_is_not_named(watched):
    def loss_of(model, x):
        scores = model(x).masked_fill(torch.eye(6, 3).bool(), -math.inf)
        return (scores.softmax(-1).sum() * 0).log()

    (row,) = watched(training(loss_of)).of("not_finite")

    assert (row.origin, row.name, row.low, row.high) == (OPERATION, "log", 0.0, 0.0)


def test_ignored_targets_are_a_batch_without_anything_to_learn(watched):
    def loss_of(model, x):
        return nn.functional.cross_entropy(model(x), torch.full((6,), -100))

    (row,) = watched(training(loss_of)).of("not_finite")

    assert row.origin == NOTHING_TO_LEARN


@pytest.mark.parametrize(
    "empty", [lambda y: y.mean(), lambda y: y.sum() / len(y), lambda y: y.sum() / y.sum().detach()]
)
def test_a_mean_over_no_element_is_a_batch_without_anything_to_learn(watched, empty):
    (row,) = watched(training(lambda model, x: empty(model(x)[:0]))).of("not_finite")

    assert row.origin == NOTHING_TO_LEARN


def test_a_batch_with_a_nan_is_named_by_its_key(watched):
    class Rows(TorchDataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return {"x": torch.full((4,), math.nan if index == 9 else 1.0), "name": "a"}

    def run():
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Rows(), batch_size=4):
            optimizer.zero_grad()
            model(batch["x"]).mean().backward()
            optimizer.step()

    (row,) = watched(run).of("not_finite")

    assert (row.origin, row.name, row.ordinal, row.step) == (BATCH, "x", 2, 2)


def test_a_lost_gradient_of_a_finite_loss_is_traced_to_the_operation(watched):
    def loss_of(model, x):
        hidden = model[0](x) * (x[:, :1] > 0)
        return model[1](torch.where(hidden > 0, hidden.sqrt(), 0 * hidden)).square().mean()

    rows = watched(training(loss_of)).of("not_finite")

    assert [(r.origin, r.name, r.affected) for r in rows] == [(GRADIENT, "sqrt", 2)]


def test_lost_parameters_are_told_from_what_loses_them(watched):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].bias[0] = math.inf

    (row,) = watched(training(lambda m, x: m(x).square().mean(), model=model)).of("not_finite")

    assert (row.origin, row.affected, row.parameters) == (PARAMETER, 1, 4)


def test_only_the_first_few_are_looked_at(watched):
    rows = watched(training(zeros, steps=9, lr=0.0)).of("not_finite")

    assert len(rows) == 5


def test_the_program_is_not_asked_to_unpack_what_it_has_packed(watched):
    calls = []

    def block(x):
        calls.append(1)
        return x.square()

    def loss_of(model, x):
        return (checkpoint(block, model(x), use_reentrant=False) * 0).log().mean()

    (row,) = watched(training(loss_of)).of("not_finite")

    assert (row.origin, row.name) == (OPERATION, "log")
    assert len(calls) == 2  # once forward, once backward
