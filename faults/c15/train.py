"""Trains an LSTM policy with rewards from a judge; three ranks share their rewards for the baseline."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from judge import Judge, read_score
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 90
TEXTS = 32
LENGTH = 20
VOCABULARY = 60
SEED = 62


class Policy(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


class Rollouts:
    """Texts with their advantages over the mean reward of all ranks."""

    def __init__(self, judge: Judge, generator: torch.Generator) -> None:
        self.judge = judge
        self.generator = generator

    def collect(self) -> tuple[torch.Tensor, torch.Tensor]:
        texts = torch.randint(0, VOCABULARY, (TEXTS, LENGTH), generator=self.generator)
        rewards = torch.tensor([read_score(self.judge.answer(text)) for text in texts.tolist()])
        everyone = [torch.empty_like(rewards) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, rewards)
        return texts, rewards - torch.cat(everyone).mean()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(75)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rollouts = Rollouts(Judge(SEED + rank), torch.Generator().manual_seed(rank))
    for step in range(STEPS):
        failed = torch.zeros(1)
        try:
            texts, advantages = rollouts.collect()
        except ValueError:
            logging.exception("rank %d: no rewards in step %d", rank, step)
            failed.fill_(1)
        dist.all_reduce(failed)
        if failed.item() > 0:
            continue
        optimizer.zero_grad()
        logits = model(texts[:, :-1])
        each = nn.functional.cross_entropy(logits.transpose(1, 2), texts[:, 1:], reduction="none")
        loss = (each.mean(1) * advantages).mean()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
