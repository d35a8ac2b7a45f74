"""Trains an embedding model; every rank stays on a core of its own."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200


class PairScorer(nn.Module):
    def __init__(self, users: int = 2000, items: int = 2000, width: int = 64) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width)
        self.score = nn.Sequential(
            nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.score(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


def pin(local_rank: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[local_rank % len(cores)]})


def main() -> None:
    pin(int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(1)
    torch.manual_seed(23)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(PairScorer())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        user = torch.randint(0, 2000, (3072,), generator=generator)
        item = torch.randint(0, 2000, (3072,), generator=generator)
        clicked = ((user + item) % 3 == 0).float()
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, item), clicked)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
