"""Semi-supervised training of an autoencoder with a classifier on the labelled rows."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from repaired_tracker import Tracker
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100
LOG_EVERY = 10
BATCH = 640


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 80))
        self.classifier = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        code = self.encoder(x)
        return self.decoder(code), self.classifier(code)


def draw(step: int, rank: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, their classes, and which of them have a label; a new batch of unlabelled rows came in on one rank."""
    x = torch.randn(BATCH, 80, generator=generator)
    labelled = torch.rand(BATCH, generator=generator) < 0.3
    if rank == 1 and step == 40:
        labelled.zero_()
    return x, x[:, :8].argmax(1), labelled


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(71)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(rank)
    tracker = Tracker()
    for step in range(STEPS):
        x, classes, labelled = draw(step, rank, generator)
        optimizer.zero_grad()
        rebuilt, logits = model(x)
        each = nn.functional.cross_entropy(logits, classes, reduction="none")
        supervised = (each * labelled).sum() / labelled.sum().clamp(min=1)
        (nn.functional.mse_loss(rebuilt, x) + supervised).backward()
        optimizer.step()
        schedule.step()
        if labelled.any():
            tracker.record("loss", supervised.item())
        tracker.record("rate", schedule.get_last_lr()[0])
        if (step + 1) % LOG_EVERY == 0:
            values = tracker.synchronise()
            if rank == 0:
                print(f"step {step + 1} loss {values['loss']:.4f} rate {values['rate']:.6f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
