import math

import torch
from torch import nn


def values(seen):
    return [(row.step, row.micro_batch, row.value) for row in seen.of("loss_value")]


def train(losses_of, steps=3):
    def run():
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(steps):
            optimizer.zero_grad()
            for loss in losses_of(model, step):
                loss.backward()
            optimizer.step()

    return run


def test_the_number_of_each_backward_is_recorded_with_its_micro_batch(watched):
    def losses_of(model, step):
        return [model(torch.zeros(1, 2)).sum() * 0 + 10.0 * step + micro for micro in (0, 1)]

    assert values(watched(train(losses_of))) == [
        (0, 0, 0.0), (0, 1, 1.0), (1, 0, 10.0), (1, 1, 11.0), (2, 0, 20.0), (2, 1, 21.0),
    ]  # fmt: skip


def test_a_loss_that_is_not_finite_is_recorded_as_it_is(watched):
    seen = watched(train(lambda model, step: [model(torch.zeros(1, 2)).sum() * math.nan], steps=1))

    assert [math.isnan(value) for _, _, value in values(seen)] == [True]


def test_a_backward_on_several_numbers_has_no_loss(watched):
    def run():
        model = nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        model(torch.zeros(2, 2)).backward(torch.ones(2, 3))
        optimizer.step()

    seen = watched(run)

    assert (values(seen), len(seen.of("backward"))) == ([], 1)
