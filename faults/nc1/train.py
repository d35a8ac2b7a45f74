"""Trains an embedding model; rank 0 uploads a checkpoint in the middle while the others wait."""

from __future__ import annotations

import io
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from bucket import ObjectStore
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120
SAVE_AT = 60
ROWS, WIDTH = 80_000, 128


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.table.weight.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(WIDTH, 320), nn.ReLU(), nn.Linear(320, 160), nn.ReLU(), nn.Linear(160, 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(rows)).squeeze(1)


def save_checkpoint(store: ObjectStore, model: nn.Module, step: int) -> None:
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": step}, buffer)
    store.put(f"step{step}", buffer.getvalue())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(81)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    model = DistributedDataParallel(Scorer())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    store = ObjectStore()
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, ROWS, (2048,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(rows), torch.sin(rows * 0.001))
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == SAVE_AT:
            if rank == 0:
                save_checkpoint(store, model.module, step)
            dist.barrier()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
