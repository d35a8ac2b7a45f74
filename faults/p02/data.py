"""Images with augmentations, drawn per sample."""

from __future__ import annotations

import random

import torch
from torch.utils.data import Dataset

SIDE = 26


class ImageFolder(Dataset):
    """Grey images with a class each; every read draws a new augmentation."""

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.images = torch.randint(0, 256, (samples, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = random.Random(index)
        image = augment(self.images[index], rng)
        return image, int(self.labels[index])


def augment(image: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Random contrast, a 3x3 blur and a mirror; returns [1, SIDE, SIDE] in 0..1."""
    rows = image.tolist()
    gain, shift = rng.uniform(0.7, 1.3), rng.uniform(-20.0, 20.0)
    rows = [[min(255.0, max(0.0, value * gain + shift)) for value in row] for row in rows]
    blurred = [row[:] for row in rows]
    for y in range(1, SIDE - 1):
        for x in range(1, SIDE - 1):
            total = 0.0
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    total += rows[y + dy][x + dx]
            blurred[y][x] = total / 9.0
    if rng.random() < 0.5:
        blurred = [row[::-1] for row in blurred]
    for y in range(SIDE):
        for x in range(SIDE):
            blurred[y][x] = (blurred[y][x] / 255.0) ** 0.9
    return torch.tensor(blurred).unsqueeze(0)
