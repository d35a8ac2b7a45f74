"""Images stored as bytes; decoded ones are kept in memory."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset


class CachedImages(Dataset):
    def __init__(self, samples: int, side: int = 48) -> None:
        generator = torch.Generator().manual_seed(51)
        self.stored = torch.randint(0, 256, (samples, 3, side, side), generator=generator, dtype=torch.uint8)
        self.decoded: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.decoded.get(index)
        if image is None:
            image = self.decoded[index] = self.stored[index].float().div_(255.0)
        return image, index % 10
