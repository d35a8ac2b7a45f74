"""Trains a mixture of experts on tokens of several dialects, some of them rare."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from moe import MixtureOfExperts
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 110
TOKENS = 1024
WORDS = 256
CLASSES = 16
SHARES = torch.tensor([0.5, 0.25, 0.15, 0.1])


class DialectModel(nn.Module):
    def __init__(self, width: int = 96, experts: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.dialects = nn.Embedding(len(SHARES), width)
        self.norm = nn.LayerNorm(width)
        self.moe = MixtureOfExperts(width, experts)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, words: torch.Tensor, dialects: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.words(words) + self.dialects(dialects)
        mixed, balance, counts = self.moe(self.norm(x))
        return self.head(x + mixed), balance, counts


class Stream:
    """Batches of one process: words, their dialect, and the class that the dialect gives the word."""

    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(500 + rank)
        self.classes = torch.randint(0, CLASSES, (len(SHARES), WORDS), generator=torch.Generator().manual_seed(5))

    def next(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        words = torch.randint(0, WORDS, (TOKENS,), generator=self.generator)
        dialects = torch.multinomial(SHARES, TOKENS, replacement=True, generator=self.generator)
        return words, dialects, self.classes[dialects, words]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(209)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(DialectModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    stream = Stream(rank)
    for step in range(STEPS):
        words, dialects, classes = stream.next()
        logits, balance, counts = model(words, dialects)
        loss = nn.functional.cross_entropy(logits, classes) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            tokens = "/".join(str(count) for count in counts.tolist())
            print(f"step {step} loss {loss.item():.4f} tokens {tokens}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
