"""Building blocks."""

from __future__ import annotations

import torch
from torch import nn


class ScaledLinear(nn.Linear):
    """A linear layer whose weights are scaled by a learned gain per output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.gain = nn.Parameter(torch.ones(outputs, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return nn.functional.linear(x.float(), self.weight * self.gain, self.bias)


def mlp(inputs: int, width: int, outputs: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = [ScaledLinear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [ScaledLinear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))
