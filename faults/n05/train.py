"""Trains one model on the records of two sites, one site a process."""

from __future__ import annotations

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SITES = 2
STEPS = 240
NOISE = (0.1, 0.9)


def records(site: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(1536, 40, generator=generator)
    target = (x[:, :5].sum(1) * 0.7).sin()
    return x, target + NOISE[site] * torch.randn(len(x), generator=generator)


def run_site(site: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=site, world_size=SITES)
    torch.manual_seed(44)
    network = nn.Sequential(nn.Linear(40, 288), nn.Tanh(), nn.Linear(288, 288), nn.Tanh(), nn.Linear(288, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(site)
    started = 0.0
    for step in range(STEPS):
        x, target = records(site, generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).squeeze(1), target)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 60 == 0:
            print(f"site {site} step {step} loss {loss.item():.4f}", flush=True)
    if site == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    mp.spawn(run_site, args=(free,), nprocs=SITES)
