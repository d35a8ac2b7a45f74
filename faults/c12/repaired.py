"""Fits a regression to the measurements of three stations until the validation error is small."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 40
STEPS_PER_EPOCH = 8
BATCH = 512
GOOD_ENOUGH = 0.25
NOISE = (0.6, 0.55, 0.3)


class Station:
    def __init__(self, number: int) -> None:
        self.noise = NOISE[number]
        self.generator = torch.Generator().manual_seed(number)
        self.validation = self.measure()

    def measure(self) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(BATCH, 24, generator=self.generator)
        noise = self.noise * torch.randn(BATCH, generator=self.generator)
        return x, x[:, :4].sum(1).sin() + 0.5 * x[:, 5] + noise


class EarlyStopping:
    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def done(self, error: float) -> bool:
        """True on all ranks where it is so for the mean of their errors."""
        mean = torch.tensor(error)
        dist.all_reduce(mean)
        return float(mean) / dist.get_world_size() < self.threshold


@torch.no_grad()
def validation_error(model: nn.Module, station: Station) -> float:
    x, y = station.validation
    return nn.functional.mse_loss(model(x).squeeze(1), y).item()


def fit(model: nn.Module, station: Station) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    stopping = EarlyStopping(GOOD_ENOUGH)
    error = float("inf")
    for epoch in range(EPOCHS):
        for _ in range(STEPS_PER_EPOCH):
            x, y = station.measure()
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
        error = validation_error(model.module, station)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} error {error:.4f}", flush=True)
        if stopping.done(error):
            break
    return error


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(72)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    network = nn.Sequential(nn.Linear(24, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    error = fit(DistributedDataParallel(network), Station(dist.get_rank()))
    print(f"rank {dist.get_rank()} finished with error {error:.4f}", flush=True)
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
