"""Trains an MLP whose widest layer is tuned at its first call."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from blocks import BlockedLinear
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(82)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), BlockedLinear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(768, 64, generator=generator)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
