"""Simulated likelihood data: one row of parameters, observations and a target a sample."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset


class LikelihoodRows(Dataset):
    """An item is a whole batch: `batch` rows drawn at random from a table of `rows`."""

    def __init__(self, rows: int, columns: int, batch: int, batches: int) -> None:
        rng = np.random.default_rng(31)
        self.table = rng.standard_normal((rows, columns), dtype=np.float32)
        self.order = rng.integers(0, rows, (batches, batch))
        self.columns = rng.permutation(columns)
        self.features = torch.from_numpy(np.ascontiguousarray(self.table[:, self.columns[:48]]))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        first = int(self.order[number][0]) % (len(self.table) - self.order.shape[1])
        features = self.features[first : first + self.order.shape[1]]
        return features, features[:, :3].sum(1)
