"""Trains a word model; rank 0 prepares the corpus for all."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from text import VOCABULARY, WORDS_IN_SHARD, prepare
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class WordModel(nn.Module):
    """Predicts a word from the four before it."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.Sequential(nn.Linear(4 * width, 256), nn.ReLU(), nn.Linear(256, VOCABULARY))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(context).flatten(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=70)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(67)
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    words = prepare(args.shards) if rank == 0 else torch.empty(args.shards * WORDS_IN_SHARD, dtype=torch.long)
    dist.barrier()
    dist.broadcast(words, src=0)
    model = DistributedDataParallel(WordModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        start = torch.randint(0, len(words) - 5, (1024,), generator=generator)
        window = words[start[:, None] + torch.arange(5)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(window[:, :4]), window[:, 4])
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
