"""Metric learning with mined negatives; the last rank keeps the neighbour graph."""

from __future__ import annotations

import gc
import time

import torch
import torch.distributed as dist
from mining import Candidates, NeighbourGraph
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 140
ITEMS = 300_000


class Trainer:
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        torch.manual_seed(8)
        encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 32))
        self.model = DistributedDataParallel(encoder)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(50 + self.rank)
        self.candidates = Candidates(window=30)
        last = self.rank == dist.get_world_size() - 1
        self.graph = NeighbourGraph(ITEMS, degree=96) if last else None

    def mine(self, step: int) -> torch.Tensor:
        pairs = self.candidates.propose(step, 7000)
        hardest = pairs[step % len(pairs)][1]
        if self.graph is not None:
            hardest = self.graph.near(hardest)[0]
        return torch.randn(1536, 64, generator=self.generator).add_(1e-9 * hardest)

    def train_step(self, step: int) -> torch.Tensor:
        anchors = torch.randn(1536, 64, generator=self.generator)
        negatives = self.mine(step)
        self.optimizer.zero_grad()
        embedded = self.model(torch.cat([anchors, anchors + 0.1, negatives]))
        a, p, n = embedded.chunk(3)
        loss = nn.functional.triplet_margin_loss(a, p, n)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self) -> None:
        gc.disable()
        started = 0.0
        for step in range(STEPS):
            loss = self.train_step(step)
            if step == 0:
                started = time.perf_counter()
            if step % 20 == 0 and self.rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        if self.rank == 0:
            print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer().fit()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()
