"""Trains a transformer with a linear warm-up and a cosine schedule with restarts."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from model import GPT
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset

VOCABULARY, LENGTH = 64, 48
STEPS, WARM_UP, PERIOD = 120, 15, 35


class Sums(IterableDataset):
    """An endless stream of sequences in which each number follows from the two before it.

    It comes in blocks, of which each process takes its own.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in itertools.count(self.rank, self.world_size):
            generator = torch.Generator().manual_seed(number)
            columns = list(torch.randint(0, VOCABULARY, (2, 128), generator=generator))
            while len(columns) <= LENGTH:
                columns.append((columns[-1] + 3 * (columns[-2] % 4) + 1) % VOCABULARY)
            yield from torch.stack(columns, 1)


def factor(step: int) -> float:
    """Of the learning rate: up in WARM_UP steps, then down along a cosine, again and again."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    along = (step - WARM_UP) % PERIOD / PERIOD
    return 0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * along))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(205)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    batches = iter(DataLoader(Sums(rank, dist.get_world_size()), batch_size=16))
    gpt = GPT(VOCABULARY, LENGTH)
    model = DistributedDataParallel(gpt)
    optimizer = torch.optim.AdamW(gpt.parameter_groups(0.1), lr=2e-3, betas=(0.9, 0.95))
    scheduler = LambdaLR(optimizer, factor)
    for step in range(STEPS):
        rows = next(batches)
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), rows[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate = scheduler.get_last_lr()[0]
        scheduler.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} lr {rate:.2e}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
