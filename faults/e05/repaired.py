"""Compresses scans with an autoencoder."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from repaired_archive import SIDE, Scans, copy_archive
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

EPOCHS = 3
FOLDER = Path(tempfile.gettempdir()) / f"scan-archive-{os.getuid()}"


class Autoencoder(nn.Module):
    def __init__(self, code: int = 24) -> None:
        super().__init__()
        pixels = SIDE * SIDE
        self.encoder = nn.Sequential(nn.Linear(pixels, 640), nn.GELU(), nn.Linear(640, code))
        self.decoder = nn.Sequential(nn.Linear(code, 640), nn.GELU(), nn.Linear(640, pixels))

    def forward(self, scans: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(scans))


def train(rank: int) -> None:
    scans = Scans(FOLDER)
    sampler = DistributedSampler(scans, seed=13, drop_last=True)
    loader = DataLoader(scans, batch_size=24, sampler=sampler, num_workers=1, persistent_workers=True, drop_last=True)
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(105)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    if rank == 0:
        copy_archive(FOLDER)
    dist.barrier()
    train(rank)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
