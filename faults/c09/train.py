"""Trains a recommender on leased machines."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from lease import Lease
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 2000
USERS, ITEMS = 4000, 2000


class Recommender(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.items = nn.Embedding(ITEMS, width)
        self.layers = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([self.users(users), self.items(items)], 1)).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(69)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(Recommender())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    lease = Lease(rank)
    for step in range(STEPS):
        users = torch.randint(0, USERS, (2048,), generator=generator)
        items = torch.randint(0, ITEMS, (2048,), generator=generator)
        liked = ((users + items) % 3 == 0).float()
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(users, items), liked)
        lease.renew_or_leave()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
