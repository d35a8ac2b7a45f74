"""A two-headed detector: class scores of an image, box offsets of the object in it."""

from __future__ import annotations

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.class_head = nn.Linear(width, 5)
        self.box_head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, images: torch.Tensor, classes: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        """The training loss; class 0 is an image without an object."""
        features = self.backbone(images)
        loss = nn.functional.cross_entropy(self.class_head(features), classes)
        positive = classes > 0
        if positive.any():
            loss = loss + nn.functional.smooth_l1_loss(self.box_head(features[positive]), boxes[positive])
        return loss
