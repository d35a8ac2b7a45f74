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

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.table[self.order[number][:, None], self.columns[None]]
        centred = (rows - np.median(rows, axis=0)) / rows.std(axis=0)
        features = torch.from_numpy(centred[:, :48].astype(np.float32))
        return features, features[:, :3].sum(1)
