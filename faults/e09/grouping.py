"""Batches of trips of similar length, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

BATCHES_IN_A_GROUP = 12


class LengthGrouped(Sampler[list[int]]):
    """Draws groups of trips at random and cuts each group into batches by length."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int = 0) -> None:
        self.lengths = lengths
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.lengths) // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.lengths), generator=self.generator).tolist()
        group_size = BATCHES_IN_A_GROUP * self.batch
        for start in range(0, len(order), group_size):
            group = sorted(order[start : start + group_size], key=lambda index: self.lengths[index], reverse=True)
            for first in range(0, len(group) - self.batch + 1, self.batch):
                yield group[first : first + self.batch]
