"""Predicts the category of a product from the words of its title."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WORDS = 3000
CATEGORIES = 12
BATCH = 64
EPOCHS = 4
TITLES = 3072


class Titles(Dataset):
    """Word ids of titles of different lengths; most words of a title belong to its category."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(80)
        self.categories = torch.randint(0, CATEGORIES, (count,), generator=generator)
        self.lengths = torch.randint(4, 13, (count,), generator=generator)
        common = torch.randint(0, WORDS, (count, 12), generator=generator)
        special = common // CATEGORIES * CATEGORIES + self.categories[:, None]
        self.words = torch.where(torch.rand(count, 12, generator=generator) < 0.6, special, common)

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.words[index, : self.lengths[index]], self.categories[index]


def collate(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    words, categories = zip(*samples, strict=True)
    ends = torch.tensor([len(title) for title in words]).cumsum(0)
    return torch.cat(words), ends.roll(1).index_fill(0, torch.tensor([0]), 0), torch.stack(categories)


class Categoriser(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, mode="mean")
        self.hidden = nn.Linear(width, 128)
        self.category = nn.Linear(128, CATEGORIES)

    def forward(self, words: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return self.category(torch.relu(self.hidden(self.words(words, starts))))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(81)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    dataset = Titles(TITLES)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(Categoriser())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        right = 0
        for words, starts, categories in loader:
            logits = model(words, starts)
            loss = nn.functional.cross_entropy(logits, categories)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((logits.argmax(1) == categories).sum())
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} right {right / len(sampler):.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
