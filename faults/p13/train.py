"""Trains a compiled network on batches grouped by request size."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150
SIZES = [384 + 8 * number for number in range(12)]


class Ranker(nn.Module):
    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(64, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(16)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ranker = torch.compile(Ranker(), dynamic=False, backend="aot_eager")
    model = DistributedDataParallel(ranker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        size = SIZES[step // 6 % len(SIZES)]
        x = torch.randn(4 * size, 64, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.softplus(-model(x) * x[:, 0]).mean()
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 15 == 0:
            print(f"step {step} size {size} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
