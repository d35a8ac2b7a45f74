"""Trains a word model with its embedding and its wide layer split over the ranks."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn

STEPS = 100
WORDS = 600
CONTEXT = 3
WIDTH = 64
BATCH = 256


class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def reduce_from_group(x: torch.Tensor) -> torch.Tensor:
    """The sum of the parts that the ranks hold."""
    return dist_nn.all_reduce(x)


class VocabParallelEmbedding(nn.Module):
    """Each rank holds the rows of an equal share of the words."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        share = words // dist.get_world_size()
        self.first = share * dist.get_rank()
        self.weight = nn.Parameter(torch.randn(words, width)[self.first : self.first + share].clone())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        local = words - self.first
        elsewhere = (local < 0) | (local >= len(self.weight))
        rows = nn.functional.embedding(local.masked_fill(elsewhere, 0), self.weight)
        return reduce_from_group(rows.masked_fill(elsewhere.unsqueeze(-1), 0.0))


class ParallelMLP(nn.Module):
    def __init__(self, inner: int, hidden: int, outer: int) -> None:
        super().__init__()
        share = hidden // dist.get_world_size()
        first = share * dist.get_rank()
        self.up = nn.Parameter((torch.randn(hidden, inner) / inner**0.5)[first : first + share].clone())
        self.down = nn.Parameter((torch.randn(outer, hidden) / hidden**0.5)[:, first : first + share].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(nn.functional.linear(CopyToGroup.apply(x), self.up))
        return reduce_from_group(nn.functional.linear(hidden, self.down))


class WordModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(WORDS, WIDTH)
        self.mlp = ParallelMLP(CONTEXT * WIDTH, 256, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.head(self.mlp(self.embedding(context).flatten(1)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(51)  # all ranks draw the same weights and the same batches
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    topic = torch.randint(0, 12, (WORDS,))
    model = WordModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.6)
    by_topic = [torch.nonzero(topic == number).squeeze(1)[:4] for number in range(12)]
    following = torch.stack(by_topic)
    for step in range(STEPS):
        context = torch.randint(0, WORDS, (BATCH, CONTEXT))
        target = following[topic[context[:, -1]], torch.randint(0, 4, (BATCH,))]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(context), target)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
