"""Losses of a multi-property model; properties are labelled on a part of the samples only."""

from __future__ import annotations

import torch
import torch.distributed as dist

PROPERTIES = 15


def global_count(mask: torch.Tensor) -> float:
    """Labelled samples over all ranks."""
    count = mask.sum().float()
    dist.all_reduce(count)
    return count.item()


def masked_loss(outputs: torch.Tensor, targets: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """Mean absolute error per property, averaged over properties; all arguments are [batch, PROPERTIES]."""
    world = dist.get_world_size()
    total = outputs.new_zeros(())
    for index in range(PROPERTIES):
        mask = labelled[:, index]
        count = global_count(mask)
        if count > 0:
            error = (outputs[:, index] - targets[:, index]).abs()
            total = total + world * error[mask].sum() / count
    return total / PROPERTIES
