"""Trains a property predictor on partly labelled molecules."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from losses import PROPERTIES, masked_loss
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 600
BATCH = 96


class Predictor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 48)
        self.mix = nn.Sequential(nn.Linear(48, 128), nn.SiLU(), nn.Linear(128, 96), nn.SiLU())
        self.out = nn.Linear(96, PROPERTIES)

    def forward(self, atoms: torch.Tensor) -> torch.Tensor:
        return self.out(self.mix(self.embed(atoms)).mean(1))


def batches(rank: int):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        atoms = torch.randint(0, 100, (BATCH, 16), generator=generator)
        targets = torch.randn(BATCH, PROPERTIES, generator=generator)
        labelled = torch.rand(BATCH, PROPERTIES, generator=generator) < 0.6
        yield atoms, targets, labelled


def train() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(11)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Predictor())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = 0.0
    for step, (atoms, targets, labelled) in enumerate(batches(dist.get_rank())):
        optimizer.zero_grad()
        loss = masked_loss(model(atoms), targets, labelled)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
