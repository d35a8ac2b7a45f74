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
    """Random contrast and a mirror; returns [1, SIDE, SIDE] in 0..1."""
    pixels = image.float().mul_(rng.uniform(0.7, 1.3) / 255.0)
    if rng.random() < 0.5:
        pixels = pixels.flip(1)
    return pixels.unsqueeze(0)
