"""Trains a patch mixer with warm-up and linear decay of the learning rate."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PATCHES = 16
PIXELS = 48
CLASSES = 8
BATCH = 64
STEPS = 112
WARM_UP = 10


class MixerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(width)
        self.token_mix = nn.Sequential(nn.Linear(PATCHES, 32), nn.GELU(), nn.Linear(32, PATCHES))
        self.channel_norm = nn.LayerNorm(width)
        self.channel_mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.token_mix(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.channel_norm(x))


class Mixer(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Linear(PIXELS, width)
        self.blocks = nn.Sequential(*[MixerBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(patches)).mean(1))


class PreparedScheduler:
    """A scheduler as the training loop sees it, on any number of processes."""

    def __init__(self, scheduler: LRScheduler, num_processes: int) -> None:
        self.scheduler = scheduler
        self.num_processes = num_processes

    def step(self) -> None:
        for _ in range(self.num_processes):
            self.scheduler.step()

    def get_last_lr(self) -> list[float]:
        return self.scheduler.get_last_lr()


def rate(step: int) -> float:
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return max(0.0, (STEPS - step) / (STEPS - WARM_UP))


def load_images(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(19)
    marks = torch.randn(CLASSES, PIXELS, generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    images = torch.randn(count, PATCHES, PIXELS, generator=generator)
    places = torch.randint(0, PATCHES, (count,), generator=generator)
    images[torch.arange(count), places] += 0.8 * marks[labels]
    return TensorDataset(images, labels)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(33)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = load_images(STEPS * BATCH * world_size)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(Mixer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = PreparedScheduler(LambdaLR(optimizer, rate), world_size)
    for step, (patches, labels) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(patches), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if rank == 0 and step % 14 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
