"""Losses of the grid detector."""

from __future__ import annotations

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss


def objectness_loss(scores: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """How well cells with an object are told from empty ones."""
    return binary_cross_entropy_with_logits(scores, taken)


def box_loss(boxes: torch.Tensor, wanted: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Distance of the boxes, as a mean over the cells with an object."""
    distance = smooth_l1_loss(boxes, wanted, reduction="none").sum(-1)
    return (distance * taken).sum() / taken.sum()
