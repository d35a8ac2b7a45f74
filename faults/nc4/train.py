"""Trains an LSTM tagger; the last rank writes a summary when the training is over."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120
SUMMARY_SECONDS = 10.0
VOCABULARY, TAGS = 300, 9


class Tagger(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, TAGS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.embedding(tokens))[0])


def summarise(model: nn.Module) -> dict[int, int]:
    """How often each tag is predicted for random sentences, from as many as fit into the time."""
    counts = dict.fromkeys(range(TAGS), 0)
    until = time.monotonic() + SUMMARY_SECONDS
    with torch.no_grad():
        while time.monotonic() < until:
            for tag in model(torch.randint(0, VOCABULARY, (8, 20))).argmax(-1).flatten().tolist():
                counts[tag] += 1
    return counts


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(84)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (24, 24), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens % TAGS)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    network = model.module
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()
    if rank == world - 1:
        print(f"summary {summarise(network)}", flush=True)


if __name__ == "__main__":
    main()
