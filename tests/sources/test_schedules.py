import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR


def fit(times, make):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = make(optimizer)
    for _ in range(5):
        model(torch.randn(2, 4)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for _ in range(times):
            schedule.step()


def counts(seen):
    return [(r.name, r.step, r.scheduled, r.stepped, r.horizon) for r in seen.of("scheduler_stat")]


def test_counts_of_a_schedule_and_of_its_optimizer_are_read_on_sampled_steps(watched):
    seen = watched(lambda: fit(2, lambda optimizer: CosineAnnealingLR(optimizer, T_max=50)))

    assert counts(seen) == [("CosineAnnealingLR", step, 2 * step, step, 50) for step in range(5)]


def test_a_schedule_without_a_known_end_has_none(watched):
    seen = watched(lambda: fit(1, lambda optimizer: LambdaLR(optimizer, lambda step: 1.0)))

    assert counts(seen) == [("LambdaLR", step, step, step, 0) for step in range(5)]
