"""Fits a wide regression network; settings come from the command line."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True, slots=True)
class Settings:
    steps: int
    threads: int
    batch_size: int


def parse() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=192)
    return Settings(**vars(parser.parse_args()))


class Regressor(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(48, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).squeeze(1)


def main() -> None:
    settings = parse()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(4)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Regressor())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    started = 0.0
    for step in range(settings.steps):
        x = torch.randn(settings.batch_size, 48, generator=generator)
        target = x[:, :8].sum(1).sin()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 50 == 49:
            print(f"{step + 1:4d} {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
