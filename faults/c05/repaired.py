"""Trains an LSTM language model with a bag-of-words objective during warm-up."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 200


class LanguageModel(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.next_token = nn.Linear(width, VOCABULARY)
        self.bag_of_words = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor, warm_up: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.next_token(hidden), self.bag_of_words(hidden[:, -1]) if warm_up else None


def loss_of(model: nn.Module, tokens: torch.Tensor, warm_up: bool) -> torch.Tensor:
    logits, words = model(tokens[:, :-1], warm_up)
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    if words is not None:
        present = torch.zeros_like(words).scatter_(1, tokens, 1.0)
        loss = loss + nn.functional.binary_cross_entropy_with_logits(words, present)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(65)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(LanguageModel(), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        tokens = torch.randint(0, VOCABULARY, (48, 25), generator=generator)
        optimizer.zero_grad()
        loss = loss_of(model, tokens, step < args.warm_up)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
