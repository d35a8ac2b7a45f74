"""Trains a conv net under a cosine schedule with warm restarts."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

STEPS = 240
PERIOD = 60


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 24, 5, padding=2),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 8),
    )


def batch(generator: torch.Generator, size: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 8, (size,), generator=generator)
    waves = torch.sin(torch.arange(28) * (labels[:, None] + 1) * 0.2)
    images = waves[:, None, :, None] * waves[:, None, None, :]
    return images + 1.5 * torch.randn(size, 1, 28, 28, generator=generator), labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(45)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=PERIOD, eta_min=1e-4)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        images, labels = batch(generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} lr {scheduler.get_last_lr()[0]:.4f} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
