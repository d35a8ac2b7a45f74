"""Trains an embedding model and keeps the loss of every step."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 220
USERS = 1500


class Ratings(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.item = nn.Embedding(USERS, width)
        self.out = nn.Sequential(
            nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 192), nn.ReLU(), nn.Linear(192, 1)
        )

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([self.user(pairs[:, 0]), self.item(pairs[:, 1])], 1)).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(48)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Ratings())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    losses: list[float] = []
    started = 0.0
    for step in range(STEPS):
        pairs = torch.randint(0, USERS, (2560, 2), generator=generator)
        rating = (pairs.sum(1) % 5).float()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(pairs), rating)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1} mean loss {sum(losses[-20:]) / 20:.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
