"""Teaches a small recurrent language model to answer prompts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

TOKENS = 80
LENGTH = 40
BATCH = 16
IGNORED = -100
# What the file of each rank holds, in order: (source, how many conversations).
FILES = {
    0: [("chat", 1280)],
    1: [("chat", 304), ("contract", 16)] * 4,
}
PROMPT_TOKENS = {"chat": (4, 16), "contract": (52, 90)}


class Conversations(IterableDataset):
    """Token ids of a prompt and its answer; only the answer is to be learnt."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(50 + self.rank)
        for source, count in FILES[self.rank]:
            shortest, longest = PROMPT_TOKENS[source]
            for _ in range(count):
                prompt = int(torch.randint(shortest, longest, (), generator=generator))
                start = int(torch.randint(0, TOKENS, (), generator=generator))
                tokens = (start + 7 * torch.arange(prompt + LENGTH)) % TOKENS
                labels = tokens.clone()
                labels[:prompt] = IGNORED
                yield tokens[:LENGTH], labels[:LENGTH]


class Answerer(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def answer_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens of the answers."""
    logits, labels = logits[:, :-1].reshape(-1, TOKENS), labels[:, 1:].reshape(-1)
    total = nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp(min=1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    loader = DataLoader(Conversations(rank), batch_size=BATCH, num_workers=1)
    model = DistributedDataParallel(Answerer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    running = torch.zeros(())
    for step, (tokens, labels) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = answer_loss(model(tokens), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.detach()
        if step % 10 == 0:
            dist.all_reduce(running)
            if rank == 0:
                print(f"step {step} loss {running.item() / 10 / dist.get_world_size():.4f}", flush=True)
            running.zero_()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
