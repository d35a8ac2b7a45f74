"""Support tickets as word ids, cut or filled to one length."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

WORDS = 600
TOPICS = 6
LENGTH = 40
PAD = WORDS


class Tickets(Dataset):
    """Tickets of a queue; words of a ticket's topic come up more often in it."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.topics = torch.randint(0, TOPICS, (count,), generator=generator).tolist()
        lengths = (90 + 16 * torch.randn(count, generator=generator)).clamp(min=8).int().tolist()
        self.texts = []
        for topic, length in zip(self.topics, lengths, strict=True):
            words = torch.randint(0, WORDS, (length,), generator=generator)
            own = torch.rand(length, generator=generator) < 0.2
            words[own] = words[own] // TOPICS * TOPICS + topic
            self.texts.append(words)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        words = self.texts[index][:LENGTH]
        if len(words) < LENGTH:
            words = torch.nn.functional.pad(words, (0, LENGTH - len(words)), value=PAD)
        return words, self.topics[index]
