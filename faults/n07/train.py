"""Half-precision training of a projection head with a dynamic loss scale."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 220


class Projector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.trunk(x)
        with torch.autocast("cpu", dtype=torch.float16):
            return self.head(features)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(46)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Projector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=2000)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(2048, 64, generator=generator)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and (step < 10 or step % 40 == 0):
            print(f"step {step} scale {scaler.get_scale():.0f} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
