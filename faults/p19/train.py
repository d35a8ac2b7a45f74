"""Mixed-precision training of an MLP on tabular data."""

from __future__ import annotations

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from layers import mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150
WORLD = 2


def worker(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(25)
    model = DistributedDataParallel(mlp(64, 384, 10, depth=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(1024, 64, generator=generator)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)
