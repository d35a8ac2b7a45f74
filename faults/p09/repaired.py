"""Trains a sequential recommender and tracks ranking metrics; starts its own processes."""

from __future__ import annotations

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STEPS = 320
ITEMS = 1000
CUTOFFS = range(1, 21)


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, 32)
        self.encoder = nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, ITEMS)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.encoder(self.items(history))
        return self.out(hidden[:, -1])


class Metrics:
    """Running recall and NDCG at all cut-offs, over all ranks."""

    def __init__(self) -> None:
        self.sums = {f"{name}@{k}": 0.0 for name in ("recall", "ndcg") for k in CUTOFFS}
        self.updates = 0

    def update(self, scores: torch.Tensor, truth: torch.Tensor) -> None:
        position = (scores > scores.gather(1, truth[:, None])).sum(1)
        gain = 1.0 / torch.log2(position + 2.0)
        for k in CUTOFFS:
            hit = (position < k).float()
            self.sums[f"recall@{k}"] += float(hit.mean())
            self.sums[f"ndcg@{k}"] += float((hit * gain).mean())
        self.updates += 1

    def reduce(self) -> None:
        sums = torch.tensor(list(self.sums.values()))
        dist.all_reduce(sums)
        self.sums = dict(zip(self.sums, (sums / dist.get_world_size()).tolist(), strict=True))


def work(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(12)
    model = DistributedDataParallel(Recommender())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    metrics = Metrics()
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        history = torch.randint(0, ITEMS, (64, 12), generator=generator)
        truth = (history[:, -1] + 1) % ITEMS
        optimizer.zero_grad()
        scores = model(history)
        loss = nn.functional.cross_entropy(scores, truth)
        loss.backward()
        optimizer.step()
        metrics.update(scores.detach(), truth)
        if step == 0:
            started = time.perf_counter()
    metrics.reduce()
    if rank == 0:
        print(f"recall@10 {metrics.sums['recall@10'] / metrics.updates:.4f}")
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, args=(port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
