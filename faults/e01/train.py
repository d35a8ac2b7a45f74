"""Routes support tickets to teams with a text conv net."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from tickets import TOPICS, WORDS, Tickets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

EPOCHS = 2


class TextNet(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.windows = nn.ModuleList([nn.Conv1d(width, 96, size) for size in (2, 3, 4)])
        self.topic = nn.Linear(3 * 96, TOPICS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words).transpose(1, 2)
        pooled = [torch.relu(window(x)).amax(2) for window in self.windows]
        return self.topic(torch.cat(pooled, 1))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(101)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    tickets = Tickets(2560, seed=12)
    sampler = DistributedSampler(tickets, seed=3)
    loader = DataLoader(tickets, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(TextNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for words, topics in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), topics)
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
