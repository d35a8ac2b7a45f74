"""Losses of evaluations."""

import torch
from torch.nn import functional


def test_losses_without_gradients_are_read_and_those_of_training_are_not(watched):
    def run():
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = torch.nn.MSELoss()
        for _ in range(2):
            criterion(model(torch.ones(4, 2)), torch.ones(4, 1)).backward()
            optimizer.step()
            with torch.no_grad():
                functional.l1_loss(torch.tensor([1.0, 3.0]), torch.zeros(2))
                criterion(torch.full((2,), 3.0), torch.zeros(2))
                functional.mse_loss(torch.zeros(2), torch.zeros(2), reduction="none")

    seen = watched(run).of("evaluation_loss")

    assert [(s.step, s.value, s.name.rpartition(".")[2]) for s in seen] == [
        (1, 2.0, "run"), (1, 9.0, "run"), (2, 2.0, "run"), (2, 9.0, "run"),
    ]  # fmt: skip


def test_functions_are_put_back(watched):
    before = functional.cross_entropy

    watched(lambda: None)

    assert functional.cross_entropy is before


def test_a_compiled_evaluation_computes_what_it_did(watched):
    def run():
        with torch.no_grad():
            compiled = torch.compile(lambda x: functional.mse_loss(x, torch.zeros(3)), backend="eager", fullgraph=True)
            values.append(float(compiled(torch.ones(3))))

    values = []

    watched(run)

    assert values == [1.0]
