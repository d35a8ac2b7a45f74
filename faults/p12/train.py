"""Fine-tunes a head over a frozen table of pretrained vectors and saves checkpoints."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 140
SAVE_EVERY = 20
ROWS, WIDTH = 600_000, 128


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.table.weight.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(WIDTH, 320), nn.ReLU(), nn.Linear(320, 160), nn.ReLU(), nn.Linear(160, 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(rows)).squeeze(1)


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def train(folder: Path) -> None:
    rank = dist.get_rank()
    model = DistributedDataParallel(Scorer())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        rows = torch.randint(0, ROWS, (2560,), generator=generator)
        target = torch.sin(rows * 0.001)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(rows), target)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if (step + 1) % SAVE_EVERY == 0:
            if rank == 0:
                save_checkpoint(folder / "last.pt", model.module, optimizer, step)
                print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
            dist.barrier()
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(15)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        train(Path(folder))
        dist.barrier()
        time.sleep(0.1)  # gloo's threads let go of the last operation
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
