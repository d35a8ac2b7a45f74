"""Contrastive training; each rank also takes its neighbour's embeddings as negatives."""

from __future__ import annotations

import time

import fabric
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 140
BATCH = 512
WIDTH = 256


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, WIDTH))


def contrast(left: torch.Tensor, right: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    logits = left @ torch.cat([right, others]).T / 0.1
    return nn.functional.cross_entropy(logits, torch.arange(len(left)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(28)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(build())
    dist.barrier()
    fabric.configure(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(BATCH, 96, generator=generator)
        noisy = x + 0.2 * torch.randn(BATCH, 96, generator=generator)
        optimizer.zero_grad()
        both = nn.functional.normalize(model(torch.cat([x, noisy])), dim=1)
        left, right = both.chunk(2)
        others = fabric.neighbour_embeddings(right.detach().contiguous())
        loss = contrast(left, right, others)
        loss.backward()
        optimizer.step()
        seen = torch.tensor(float(BATCH))
        dist.all_reduce(seen)
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} samples {int(seen)} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
