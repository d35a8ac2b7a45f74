"""Fits a deep residual regressor."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from model import Network
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 70


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(24)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    began = time.perf_counter()
    model = DistributedDataParallel(Network())
    if rank == 0:
        print(f"model ready after {time.perf_counter() - began:.1f} s", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(192, 64, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), x[:, :4].sum(1))
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
