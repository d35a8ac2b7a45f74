"""Trains a convolutional autoencoder; the batch grows in the second stage of the training."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE = 24
BATCH = 12
# (optimizer steps, batches that are accumulated for each)
STAGES = ((40, 1), (30, 8))


class Autoencoder(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 36, 32),
        )
        self.decoder = nn.Sequential(
            nn.Linear(32, 2 * width * 36),
            nn.ReLU(),
            nn.Unflatten(1, (2 * width, 6, 6)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(pictures))


def draw(generator: torch.Generator) -> torch.Tensor:
    """Pictures of crossing stripes."""
    line = torch.linspace(0.0, 6.28, SIDE)
    frequency = 0.5 + 1.5 * torch.rand(BATCH, 2, 1, generator=generator)
    phase = 6.28 * torch.rand(BATCH, 2, 1, generator=generator)
    waves = torch.sin(frequency * line + phase)
    return (waves[:, 0, :, None] + waves[:, 1, None, :]).unsqueeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(10)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(rank)
    for stage, (steps, accumulate) in enumerate(STAGES):
        for step in range(steps):
            optimizer.zero_grad()
            total = 0.0
            for part in range(accumulate):
                pictures = draw(generator)
                with model.no_sync() if part < accumulate - 1 else nullcontext():
                    loss = nn.functional.smooth_l1_loss(model(pictures), pictures)
                    loss.backward()
                total += loss.item() / accumulate
            optimizer.step()
            if rank == 0 and step % 8 == 0:
                print(f"stage {stage} step {step} loss {total:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
