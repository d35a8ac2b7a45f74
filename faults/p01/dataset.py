"""Reads samples of a sharded archive; every reader process opens its own handle."""

from __future__ import annotations

import time

import torch
from torch.utils.data import Dataset

OPEN_SECONDS = 0.7


class Archive:
    """A handle on the remote archive: the index is fetched when it is opened."""

    def __init__(self, samples: int) -> None:
        time.sleep(OPEN_SECONDS)  # round trips to the metadata service
        generator = torch.Generator().manual_seed(17)
        self.index = torch.randperm(samples, generator=generator)

    def read(self, position: int) -> tuple[torch.Tensor, int]:
        key = int(self.index[position])
        generator = torch.Generator().manual_seed(key)
        return torch.randn(3, 32, 32, generator=generator), key % 10


class ArchiveDataset(Dataset):
    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.archive: Archive | None = None

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        assert self.archive is not None
        return self.archive.read(position)


def open_archive(worker_id: int) -> None:
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.archive = Archive(len(dataset))
