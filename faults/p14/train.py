"""Trains an image classifier with experiment tracking."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tracker import Tracker

STEPS = 160


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 96, 3, stride=2, padding=1),
        Residual(96),
        nn.AvgPool2d(2),
        Residual(96),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 20),
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(18)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    network = build()
    with tempfile.TemporaryDirectory(prefix="experiment-") as folder:
        tracker = Tracker(Path(folder) / f"rank{rank}.jsonl", interval=2)
        tracker.watch(network)
        model = DistributedDataParallel(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        generator = torch.Generator().manual_seed(rank)
        started = 0.0
        for step in range(STEPS):
            images = torch.randn(12, 3, 24, 24, generator=generator)
            labels = torch.randint(0, 20, (12,), generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step == 0:
                started = time.perf_counter()
        if rank == 0:
            print(f"loss {loss.item():.4f}")
            print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
        tracker.close()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
