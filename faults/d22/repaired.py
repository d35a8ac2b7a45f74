"""Trains a click model on a log of shopping sessions, on two ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

ITEMS = 1500
SEEN = 8
BATCH = 256
STEPS = 100
ROWS = 2 * STEPS * BATCH


def read_log(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Items seen in a session, the item offered, and whether it was clicked."""
    appeal, price = torch.randn(2, ITEMS, generator=torch.Generator().manual_seed(11))
    generator = torch.Generator().manual_seed(seed)
    seen = torch.randint(0, ITEMS, (rows, SEEN), generator=generator)
    offered = torch.randint(0, ITEMS, (rows,), generator=generator)
    match = 2.0 * appeal[offered] + 2.0 * price[seen].mean(1)
    return seen, offered, (torch.rand(rows, generator=generator) < match.sigmoid()).float()


class ClickLog(IterableDataset):
    """Streams the row groups of the log in the order in which they were written."""

    def __init__(self, rows: int, seed: int) -> None:
        self.seen, self.offered, self.clicked = read_log(rows, seed)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        groups = range(dist.get_rank() * BATCH, len(self.clicked), dist.get_world_size() * BATCH)
        for first in groups:
            rows = slice(first, first + BATCH)
            yield self.seen[rows], self.offered[rows], self.clicked[rows]


class ClickModel(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.session = nn.EmbeddingBag(ITEMS, width, mode="mean")
        self.offer = nn.Embedding(ITEMS, width)
        self.score = nn.Sequential(nn.Linear(3 * width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, seen: torch.Tensor, offered: torch.Tensor) -> torch.Tensor:
        session, offer = self.session(seen), self.offer(offered)
        return self.score(torch.cat([session, offer, session * offer], 1)).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(22)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    loader = DataLoader(ClickLog(ROWS, seed=5), batch_size=None)
    model = DistributedDataParallel(ClickModel())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for step, (seen, offered, clicked) in enumerate(islice(loader, STEPS)):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(seen, offered), clicked)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        model.eval()
        with torch.no_grad():
            seen, offered, clicked = read_log(8000, seed=6)
            loss = nn.functional.binary_cross_entropy_with_logits(model.module(seen, offered), clicked)
        print(f"validation loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
