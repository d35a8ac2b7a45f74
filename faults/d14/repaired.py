"""Forecasts the load of a power grid; between the training rounds the weights are parked in host memory."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS = 3
STEPS = 36
HOURS = 36
BATCH = 24


class Forecaster(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, hours: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(hours)[0]).squeeze(2)


class Grid:
    """Load with a daily rhythm and an outside temperature, of the stations of one rank."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        start = 24 * torch.rand(BATCH, 1, generator=self.generator)
        hour = start + torch.arange(HOURS + 1)
        temperature = torch.randn(BATCH, HOURS + 1, generator=self.generator).cumsum(1) / 6
        load = torch.sin(hour * 6.283 / 24) - 0.4 * temperature + 0.05 * torch.randn(BATCH, 1, generator=self.generator)
        return torch.stack([load[:, :-1], temperature[:, :-1]], 2), load[:, 1:]


def park(model: nn.Module) -> dict[str, np.ndarray]:
    """A copy of the weights, so that the simulator can have the memory."""
    return {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def unpark(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))


def simulate(weights: dict[str, np.ndarray]) -> float:
    """How much power the plants must hold back: stands for a long external program."""
    return float(np.mean([np.abs(value).mean() for value in weights.values()]))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(15)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Forecaster())
    grid = Grid(seed=rank)
    for number in range(ROUNDS):
        optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        for step in range(STEPS):
            hours, following = grid.batch()
            loss = nn.functional.mse_loss(model(hours), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 12 == 0:
                print(f"rank {rank} round {number} step {step} loss {loss.item():.4f}", flush=True)
        weights = park(model)
        reserve = simulate(weights)
        if rank == 0:
            print(f"round {number} reserve {reserve:.4f}", flush=True)
        unpark(model, weights)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
