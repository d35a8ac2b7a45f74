"""Microscope images of cells with their outlines filled in, as 8-bit images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.data import Dataset

SIDE = 32


def draw(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """One image [1, SIDE, SIDE] and its mask, both of 8 bits."""
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    mask = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    for _ in range(3):
        row, column, radius = torch.rand(3, generator=generator).mul(torch.tensor([SIDE, SIDE, 5.0])).tolist()
        mask |= (y - row) ** 2 + (x - column) ** 2 < (radius + 3.0) ** 2
    image = 90.0 + 45.0 * mask + 30.0 * torch.randn(SIDE, SIDE, generator=generator)
    return image.clamp(0, 255).byte().unsqueeze(0), mask.byte().mul(255).unsqueeze(0)


class Cells(Dataset):
    def __init__(self, count: int, seed: int, transform: Callable[[torch.Tensor], torch.Tensor]) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.pairs = [draw(generator) for _ in range(count)]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, mask = self.pairs[index]
        return self.transform(image) / 255.0, mask / 255.0
