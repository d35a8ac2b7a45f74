"""Metrics over all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist


class Perplexity:
    def __init__(self) -> None:
        self.sums = torch.zeros(2)

    def update(self, loss: torch.Tensor, tokens: int) -> None:
        self.sums += torch.tensor([loss.item() * tokens, tokens])

    def compute(self) -> float:
        sums = self.sums.clone()
        dist.all_reduce(sums)
        return float((sums[0] / sums[1]).exp())
