"""Trains an image classifier on sharded images; a checkpoint is written after each epoch."""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from shards import shards_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, padding=1)
        self.second = nn.Conv2d(24, 48, 3, stride=2, padding=1)
        self.out = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.out(x.mean((2, 3)))


def steps_of_all(loader: DataLoader) -> int:
    """As many batches as the rank with the fewest has."""
    steps = torch.tensor(len(loader))
    dist.all_reduce(steps, dist.ReduceOp.MIN)
    return int(steps)


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    total, steps = 0.0, steps_of_all(loader)
    for images, labels in islice(loader, steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(shards_of(rank, world), batch_size=args.batch_size, shuffle=True)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        for epoch in range(args.epochs):
            loss = train_epoch(model, loader, optimizer)
            dist.barrier()
            if rank == 0:
                torch.save(model.module.state_dict(), Path(folder) / f"epoch{epoch}.pt")
                print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
