"""Trains a GRU on sequences of readings."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 80


class Forecaster(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.gru = nn.GRU(8, width, batch_first=True)
        self.out = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.gru(x)[0])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(77)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    model = DistributedDataParallel(Forecaster())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(32, 33, 8, generator=generator).cumsum(1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[:, :-1]), x[:, 1:])
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
