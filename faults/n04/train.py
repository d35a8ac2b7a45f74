"""Trains an LSTM tagger with four micro-batches a step."""

from __future__ import annotations

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150
MICRO_BATCHES = 4


class Tagger(nn.Module):
    def __init__(self, words: int = 400, tags: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.tags = nn.Linear(128, tags)

    def forward(self, sentence: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.words(sentence))
        return self.tags(hidden)


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(43)
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(Tagger())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.generator = torch.Generator().manual_seed(self.rank)

    def micro_batch(self) -> torch.Tensor:
        sentence = torch.randint(0, 400, (48, 32), generator=self.generator)
        logits = self.model(sentence)
        return nn.functional.cross_entropy(logits.transpose(1, 2), sentence % 12) / MICRO_BATCHES

    def step(self) -> float:
        self.optimizer.zero_grad()
        total = 0.0
        for micro in range(MICRO_BATCHES):
            last = micro == MICRO_BATCHES - 1
            with nullcontext() if last else self.model.no_sync():
                loss = self.micro_batch()
                loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total

    def fit(self) -> None:
        started = 0.0
        for step in range(STEPS):
            loss = self.step()
            if step == 0:
                started = time.perf_counter()
            if self.rank == 0 and step % 25 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
        if self.rank == 0:
            print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer().fit()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()
