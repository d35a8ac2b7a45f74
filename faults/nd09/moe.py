"""A mixture of experts: each token goes to the expert that its router prefers."""

from __future__ import annotations

import torch
from torch import nn


class Expert(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))


class MixtureOfExperts(nn.Module):
    """Returns the mixed tokens, the balance loss (1 where all experts get the same) and the tokens of each expert."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width) for _ in range(experts)])

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        chances = self.router(tokens).softmax(-1)
        weight, choice = chances.max(-1)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            mine = (choice == number).nonzero().squeeze(1)
            # An expert without tokens runs on none, so that its gradients are zero and not missing.
            mixed = mixed.index_add(0, mine, expert(tokens[mine]) * weight[mine, None])
        counts = torch.bincount(choice, minlength=len(self.experts))
        balance = len(self.experts) * (counts / len(tokens) * chances.mean(0)).sum()
        return mixed, balance, counts
