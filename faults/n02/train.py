"""Trains a classifier on rotated features, with loader workers."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from augment import Rotations
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 240
BATCH = 512
FEATURES = 192


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(41)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.randn(60 * BATCH * world, FEATURES, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(x, x[:, :16].argmax(1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    rotations = Rotations(12, FEATURES)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(FEATURES, 320), nn.GELU(), nn.Linear(320, 320), nn.GELU(), nn.Linear(320, 16))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, started = 0, 0.0
    for epoch in range(STEPS // len(loader)):
        sampler.set_epoch(epoch)
        for features, labels in loader:
            rotated = features @ rotations.get(step)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.cat([features, rotated])), labels.repeat(2))
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                started = time.perf_counter()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
