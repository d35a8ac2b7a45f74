"""Trains a mixture of experts on four ranks: two pairs, each with one expert a rank."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from repaired_experts import Experts
from torch import nn

STEPS = 80
VOCABULARY = 128
LENGTH = 24
BATCH = 12
PADDING = 0


class Model(nn.Module):
    def __init__(self, group: dist.ProcessGroup, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.mixer = nn.Linear(LENGTH, LENGTH)
        self.experts = Experts(width, group)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.mixer(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.experts(x, tokens != PADDING))


def average_gradients(model: Model, replicas: dist.ProcessGroup) -> None:
    """Experts are averaged over the ranks with the same expert, everything else over all ranks."""
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        group = replicas if name.startswith("experts.expert.") else dist.group.WORLD
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)


def read_batch(step: int, rank: int, generator: torch.Generator) -> torch.Tensor:
    """Documents of different lengths; the crawl of rank 1 has a stretch of empty pages."""
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=generator)
    longest = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1), generator=generator)
    if rank == 1 and 40 <= step < 44:
        longest.zero_()
    return tokens.masked_fill(torch.arange(LENGTH) >= longest, PADDING)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(74)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    twins = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    model = Model(pairs[rank // 2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens = read_batch(step, rank, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens)
        loss.backward()
        average_gradients(model, twins[rank % 2])
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
