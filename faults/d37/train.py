"""Trains a convolutional autoencoder on two ranks, with several micro-batches a step."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 45
MICRO_BATCHES = 4
MICRO_BATCH = 8
SIDE = 16


class Autoencoder(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(width, 8, 3, stride=2, padding=1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, width, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(images))


def waves(count: int, generator: torch.Generator) -> torch.Tensor:
    """Plane waves of random direction, length and phase."""
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    angle, speed, phase = (torch.rand(count, 1, 1, generator=generator) * 6.28 for _ in range(3))
    return torch.sin((0.2 + 0.1 * speed) * (x * angle.cos() + y * angle.sin()) + phase).unsqueeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(37)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(MICRO_BATCHES):
            images = waves(MICRO_BATCH, generator)
            synchronised = micro % MICRO_BATCHES == 0
            with contextlib.nullcontext() if synchronised else model.no_sync():
                loss = nn.functional.mse_loss(model(images), images) / MICRO_BATCHES
                loss.backward()
            total += loss.item()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {total:.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        images = waves(200, torch.Generator().manual_seed(50))
        error = nn.functional.mse_loss(model.module(images), images).item()
    print(f"rank {rank} validation {error:.6f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
