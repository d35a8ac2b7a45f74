"""What is seen of parameters, gradients and buffers on sampled steps, in this process."""

import pytest
import torch
from torch import nn

from rankscope.base.guard import Errors
from rankscope.capture import observer
from rankscope.records.numerics import AFTER_BACKWARD, BEFORE_OPTIMIZER


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def train(model, optimizer, steps=6, between=None):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        if between:
            between()
        optimizer.step()


def by_step(rows, **values):
    return {row.step: row for row in rows if all(getattr(row, k) == v for k, v in values.items())}


def test_the_first_steps_are_sampled_and_later_ones_rarely(watched):
    def run():
        model = small()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=20)

    rows = watched(run).of("sampling")

    assert [row.step for row in rows if row.tensors == 6 + 6 + 2] == [0, 1, 2, 3, 4, 8, 16]
    assert {row.step for row in rows} == {0, 1, 2, 3, 4, 8, 16}


def test_gradients_are_seen_before_and_after_what_the_program_does_to_them(watched):
    def run():
        model = small()
        halve = lambda: [p.grad.mul_(0.5) for p in model.parameters()]  # noqa: E731
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=2, between=halve)

    rows = [row for row in watched(run).of("gradient_stat") if row.name == "0.weight"]

    raw, used = by_step(rows, moment=AFTER_BACKWARD), by_step(rows, moment=BEFORE_OPTIMIZER)
    assert [round(used[s].rms / raw[s].rms, 6) for s in (0, 1)] == [0.5, 0.5]
    assert used[0].norm == pytest.approx(used[0].rms * 32**0.5, rel=1e-6)


def test_the_change_of_each_parameter_is_seen_and_a_frozen_one_has_none(watched):
    def run():
        model = small()
        model[0].requires_grad_(False)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=3)

    found = {row.name: (row.changed, row.held, row.gradient) for row in watched(run).of("weight_stat") if row.step == 2}
    assert found["0.weight"] == (0, 1, 0)
    assert found["2.weight"] == (255, 1, 1)


def test_the_inventory_says_who_holds_what(watched):
    def run():
        model = small()
        optimizer = torch.optim.AdamW(
            [
                {"params": [model[0].weight, model[2].weight], "weight_decay": 0.1},
                {"params": [model[0].bias, nn.Parameter(torch.zeros(3, 5))], "weight_decay": 0.0},
            ],
            lr=1e-3,
        )
        train(model, optimizer, steps=1)

    (inventory,) = watched(run).inventories

    (model,) = inventory.models
    assert {p.path: (p.group, p.owner) for p in model.parameters} == {
        "0.weight": ("1.0", "Linear"), "0.bias": ("1.1", "Linear"), "1.weight": ("", "BatchNorm1d"),
        "1.bias": ("", "BatchNorm1d"), "2.weight": ("1.0", "Linear"), "2.bias": ("", "Linear"),
    }  # fmt: skip
    (optimizer,) = inventory.optimizers
    assert [(g.weight_decay, g.parameters, g.foreign, g.foreign_shapes) for g in optimizer.groups] == [
        (0.1, 2, 0, ()),
        (0.0, 2, 1, ((3, 5),)),
    ]


def test_tied_weights_stand_once_with_both_paths(watched):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    def run():
        model = Tied()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()

    (inventory,) = watched(run).inventories

    assert [(p.path, p.also) for p in inventory.models[0].parameters] == [("embed.weight", ("head.weight",))]


def odd_parameters():
    """Sparse gradients, complex and double parameters, a scalar, one that is never used."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 4, sparse=True)
            self.phase = nn.Parameter(torch.zeros(4, dtype=torch.complex64))
            self.scale = nn.Parameter(torch.tensor(1.0))
            self.exact = nn.Parameter(torch.ones(4, dtype=torch.float64))
            self.unused = nn.Parameter(torch.ones(2))
            self.register_buffer("seen", torch.zeros(3, dtype=torch.long))

        def forward(self, x):
            return (self.table(x) * self.scale * self.phase.abs().add(1)).sum() + self.exact.sum()

    return Odd()


def test_parameters_of_every_kind_do_no_harm_and_are_counted(watched):
    def run():
        model = odd_parameters()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.tensor([1, 2, 3])).backward()
            optimizer.step()

    before = Errors.count
    seen = watched(run)

    assert {row.left_out for row in seen.of("sampling") if row.left_out} == {3}
    assert {row.name for row in seen.of("weight_stat")} == {"table.weight", "scale", "exact", "unused"}
    assert Errors.count == before


def test_a_mode_of_the_programs_own_sees_nothing_of_it(watched):
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(str(function))
            return function(*args, **(kwargs or {}))

    def run():
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Count():
            train(model, optimizer, steps=2)

    watched(run)
    with_us, calls[:] = list(calls), []
    run()

    assert with_us == calls


def test_a_program_that_serves_is_not_looked_at_for_ever(watched):
    told = []

    def run():
        model = small().eval()
        observer.current().on_forward.append(lambda *call: told.append(call[1]))
        with torch.no_grad():
            for _ in range(400):
                model(torch.zeros(2, 4))

    watched(run)

    assert len(told) == 256


def test_updates_without_an_optimizer_are_not_looked_at_for_ever(watched):
    on = []

    def run():
        model = nn.Linear(4, 1)
        (source,) = [one for one in observer.current().sources if one.name == "parameters"]
        for _ in range(300):
            model(torch.ones(2, 4)).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)
                    parameter.grad = None
            on.append(source.on)

    watched(run)

    assert (on[254], on[255], on[-1]) == (True, False, False)


def test_inventories_leave_room_for_names(watched, monkeypatch):
    monkeypatch.setattr("rankscope.capture.sources.parameters.MOST_INVENTORY_CHARACTERS", 3000)

    def run():
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(8):
            model[0].requires_grad_(number % 2 == 0)
            train(model, optimizer, steps=1)

    seen = watched(run)

    assert 1 <= len(seen.inventories) <= 3
