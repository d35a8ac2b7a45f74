"""Image shards as listed in a manifest; each rank reads every n-th of them."""

from __future__ import annotations

import torch
from torch.utils.data import ConcatDataset, TensorDataset

# Images in each shard, as the writer left them.
MANIFEST = (512, 512, 512, 512, 480, 376)


def read_shard(number: int, images: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(number)
    labels = torch.randint(0, 10, (images,), generator=generator)
    pixels = torch.randn(images, 3, 32, 32, generator=generator) + labels.view(-1, 1, 1, 1) * 0.1
    return TensorDataset(pixels, labels)


def shards_of(rank: int, world: int) -> ConcatDataset:
    mine = range(rank, len(MANIFEST), world)
    return ConcatDataset([read_shard(number, MANIFEST[number]) for number in mine])
