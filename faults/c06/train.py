"""Trains a denoiser with batch normalisation; sample quality is printed now and then."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100
PREVIEW_EVERY = 40


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class Denoiser(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.Sequential(block(1, width), block(width, width), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        return noisy - self.layers(noisy)


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(66)
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(Denoiser())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(self.rank)

    def draw(self, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
        clean = torch.rand(size, 1, 4, 4, generator=self.generator).repeat_interleave(8, 2).repeat_interleave(8, 3)
        return clean + 0.2 * torch.randn(clean.shape, generator=self.generator), clean

    def train_step(self) -> torch.Tensor:
        noisy, clean = self.draw()
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(noisy), clean)
        loss.backward()
        self.optimizer.step()
        return loss

    def preview(self, step: int) -> None:
        noisy, clean = self.draw()
        with torch.no_grad():
            restored = self.model(noisy)
        error = nn.functional.mse_loss(restored, clean).item()
        print(f"step {step} preview error {error:.4f}", flush=True)

    def fit(self) -> None:
        for step in range(1, STEPS + 1):
            loss = self.train_step()
            if self.rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % PREVIEW_EVERY == 0:
                if self.rank == 0:
                    self.preview(step)
                dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    Trainer().fit()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
