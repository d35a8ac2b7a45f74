"""Averages tensors over the ranks, through the staging memory of each machine's adapter."""

from __future__ import annotations

import torch
import torch.distributed as dist


class Link:
    def __init__(self, rank: int, world_size: int) -> None:
        self.world_size = world_size

    def average(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by its mean over the ranks."""
        staging = tensor / self.world_size
        dist.all_reduce(staging)
        tensor.copy_(staging)
