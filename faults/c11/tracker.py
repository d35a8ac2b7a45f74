"""Metrics of a logging interval: some are averaged over the ranks, some are rank 0's."""

from __future__ import annotations

import torch
import torch.distributed as dist

FROM_RANK_0 = ("rate",)


class Tracker:
    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def record(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def synchronise(self) -> dict[str, float]:
        result = {}
        for name, values in self.values.items():
            value = torch.tensor(sum(values) / len(values))
            if name in FROM_RANK_0:
                dist.broadcast(value, src=0)
            else:
                dist.all_reduce(value)
                value /= dist.get_world_size()
            result[name] = value.item()
        self.values.clear()
        return result
