"""Trains an LSTM language model with two micro-batches a step; reports held-out perplexity."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 120
WINDOW = 28
BATCH = 16
MICRO_BATCHES = 2
STEPS = 100
CHECK_EVERY = 25


def write_text(length: int, seed: int) -> torch.Tensor:
    """A text in which each word allows four next words."""
    followers = torch.randint(0, VOCABULARY, (VOCABULARY, 4), generator=torch.Generator().manual_seed(0))
    choices = torch.randint(0, 4, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    table, word, words = followers.tolist(), 0, []
    for choice in choices:
        word = table[word][choice]
        words.append(word)
    return torch.tensor(words)


class LanguageModel(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.dropout = nn.Dropout(0.1)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.1, batch_first=True)
        self.output = nn.Linear(width, VOCABULARY)
        self.output.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, 0.0, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(words)))
        return self.output(self.dropout(states))


def windows(text: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pieces = text[starts[:, None] + torch.arange(WINDOW + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model: nn.Module, words: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(words).flatten(0, 1), following.flatten())


def perplexity(model: nn.Module, text: torch.Tensor) -> float:
    """Over the whole held-out text, of which each process reads its own part."""
    parts = text.chunk(dist.get_world_size())[dist.get_rank()]
    starts = torch.arange(0, len(parts) - WINDOW, WINDOW)
    model.eval()
    with torch.no_grad():
        total = loss_of(model, *windows(parts, starts)).double()
    model.train()
    dist.all_reduce(total)
    return math.exp(float(total) / dist.get_world_size())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(204)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    text, held_out = write_text(60_000, seed=1 + rank), write_text(2 * 20 * WINDOW + 2, seed=99)
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss_sum = 0.0
        for micro in range(MICRO_BATCHES):
            starts = torch.randint(0, len(text) - WINDOW, (BATCH,), generator=generator)
            last = micro == MICRO_BATCHES - 1
            with nullcontext() if last else model.no_sync():
                loss = loss_of(model, *windows(text, starts)) / MICRO_BATCHES
                loss.backward()
            loss_sum += float(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss_sum:.4f}", flush=True)
        if step % CHECK_EVERY == 0:
            measured = perplexity(model.module, held_out)
            if rank == 0:
                print(f"step {step} perplexity {measured:.2f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
