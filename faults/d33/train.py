"""Trains a wide-and-deep model of prices; the deep part joins after some steps."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

NUMBERS = 24
PLACES = 300
BATCH = 512
STEPS = 110
DEEP_FROM_STEP = 10


class PlannedAdam(torch.optim.Optimizer):
    """Adam over lists of tensors; the lists are made once, when the state has been set up."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})
        self.steps = 0
        self.plan: list[nn.Parameter] = []

    def make_plan(self) -> None:
        self.plan = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter in self.plan:
            if parameter not in self.state:
                self.state[parameter] = {
                    "step": 0,
                    "mean": torch.zeros_like(parameter),
                    "square": torch.zeros_like(parameter),
                }

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        if self.steps < 2:
            self.make_plan()
        self.steps += 1
        lr, (beta1, beta2) = self.param_groups[0]["lr"], self.param_groups[0]["betas"]
        for parameter in self.plan:
            state = self.state[parameter]
            state["step"] += 1
            state["mean"].lerp_(parameter.grad, 1.0 - beta1)
            state["square"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1.0 - beta2)
            mean = state["mean"] / (1.0 - beta1 ** state["step"])
            square = state["square"] / (1.0 - beta2 ** state["step"])
            parameter.addcdiv_(mean, square.sqrt() + 1e-8, value=-lr)


class PriceModel(nn.Module):
    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.wide = nn.Linear(NUMBERS, 1)
        self.place = nn.Embedding(PLACES, 16)
        self.deep = nn.Sequential(
            nn.Linear(NUMBERS + 16, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, numbers: torch.Tensor, places: torch.Tensor, deep: bool) -> torch.Tensor:
        price = self.wide(numbers)
        if deep:
            price = price + self.deep(torch.cat([numbers, self.place(places)], 1))
        return price.squeeze(1)


def sales(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    fixed = torch.Generator().manual_seed(14)
    worth, slope = torch.randn(PLACES, generator=fixed), torch.randn(NUMBERS, generator=fixed) / NUMBERS**0.5
    numbers = torch.randn(BATCH, NUMBERS, generator=generator)
    places = torch.randint(0, PLACES, (BATCH,), generator=generator)
    prices = numbers @ slope + 0.7 * worth[places] + 0.7 * torch.tanh(2.0 * numbers[:, 0] * numbers[:, 1])
    return numbers, places, prices


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(33)
    model = PriceModel()
    optimizer = PlannedAdam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        numbers, places, prices = sales(generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(numbers, places, deep=step >= DEEP_FROM_STEP), prices)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
