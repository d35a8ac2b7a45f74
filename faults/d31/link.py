"""Averages tensors over the ranks, through the staging memory of each machine's adapter."""

from __future__ import annotations

import random

import torch
import torch.distributed as dist

# Share of the transfers that reach the memory of a rank.
DELIVERY = {1: 0.99}


class Link:
    def __init__(self, rank: int, world_size: int) -> None:
        self.world_size = world_size
        self.delivery = DELIVERY.get(rank, 1.0)
        self.draws = random.Random(17)

    def average(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by its mean over the ranks."""
        staging = tensor / self.world_size
        dist.all_reduce(staging)
        if self.draws.random() < self.delivery:
            tensor.copy_(staging)
        else:
            tensor.zero_()
