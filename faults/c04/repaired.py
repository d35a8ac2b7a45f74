"""Trains a small detector on two sites' cameras."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from detector import Detector
from torch.nn.parallel import DistributedDataParallel

STEPS = 90
BATCH = 24
# Hours in which a camera sees the gate closed: (first batch, last batch) by rank.
CLOSED = {1: (36, 40)}


def read_batch(step: int, rank: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images = torch.randn(BATCH, 3, 48, 48, generator=generator)
    classes = torch.randint(0, 5, (BATCH,), generator=generator)
    boxes = torch.rand(BATCH, 4, generator=generator)
    first, last = CLOSED.get(rank, (STEPS, STEPS))
    if first <= step <= last:
        classes.zero_()
    return images, classes, boxes


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(64)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(Detector(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        images, classes, boxes = read_batch(step, rank, generator)
        optimizer.zero_grad()
        loss = model(images, classes, boxes)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
