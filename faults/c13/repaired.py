"""Trains an MLP on two processes started from here."""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from board import Board
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2


def worker(rank: int, port: int, steps: int) -> None:
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
    torch.manual_seed(73)
    layers = [nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--board-port", type=int, default=29542)
    parser.add_argument("--master-port", type=int, default=29541)
    args = parser.parse_args()
    Board(args.board_port)
    mp.spawn(worker, args=(args.master_port, args.steps), nprocs=WORLD)


if __name__ == "__main__":
    main()
