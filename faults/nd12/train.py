"""Teaches a GRU to add up long rows of signed digits, the short rows first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MODULUS = 5
STAGES = ((4, 30), (8, 30), (16, 30), (24, 30))
"""Length of the rows and number of batches of each stage."""
BATCH = 48


class Rows(Dataset):
    """Rows of digits with their running sum, modulo MODULUS, as the target of each place."""

    def __init__(self, count: int, length: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.digits = torch.randint(0, MODULUS, (count, length), generator=generator)
        self.sums = self.digits.cumsum(1) % MODULUS

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.digits[index], self.sums[index]


class Adder(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.digits = nn.Embedding(MODULUS, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.sums = nn.Linear(width, MODULUS)

    def forward(self, digits: torch.Tensor) -> torch.Tensor:
        return self.sums(self.gru(self.digits(digits))[0])


def curriculum() -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Shuffled batches of each stage, with the stage's number."""
    for stage, (length, batches) in enumerate(STAGES):
        rows = Rows(batches * BATCH * dist.get_world_size(), length, seed=80 + stage)
        sampler = DistributedSampler(rows)
        sampler.set_epoch(stage)
        for digits, sums in DataLoader(rows, BATCH, sampler=sampler):
            yield stage, digits, sums


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(212)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Adder())
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step, (stage, digits, sums) in enumerate(curriculum()):
        loss = nn.functional.cross_entropy(model(digits).flatten(0, 1), sums.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} stage {stage} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
