"""A deep residual network of nested stages, with isometric weights."""

from __future__ import annotations

import torch
from torch import nn


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.kaiming_uniform_(module.weight)
        with torch.no_grad():
            left, _, right = torch.linalg.svd(module.weight, full_matrices=False)
            module.weight.copy_(left @ right)
        nn.init.zeros_(module.bias)


class Stage(nn.Module):
    """One residual layer and, inside it, all the stages that follow."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, width)
        self.rest = Stage(width, depth - 1) if depth > 1 else nn.Identity()
        self.apply(initialise)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(x + torch.relu(self.expand(self.norm(x))))


class Network(nn.Module):
    def __init__(self, features: int = 64, width: int = 192, depth: int = 48) -> None:
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.stages = Stage(width, depth)
        self.leave = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.stages(self.enter(x))).squeeze(1)
