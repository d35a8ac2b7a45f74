"""A layer of experts, one on each rank of a group; tokens travel to the expert that their router chose."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tokens: torch.Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.send, ctx.receive, ctx.group = send, receive, group
        arrived = tokens.new_empty(sum(receive), tokens.shape[1])
        dist.all_to_all_single(arrived, tokens.contiguous(), receive, send, group=group)
        return arrived

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return Exchange.apply(gradient, ctx.receive, ctx.send, ctx.group), None, None, None


class Experts(nn.Module):
    def __init__(self, width: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.count = dist.get_world_size(group)
        self.router = nn.Linear(width, self.count)
        self.expert = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Only the tokens in `kept` are sent; the others pass unchanged."""
        tokens = x[kept]
        if len(tokens) == 0:
            return x
        weight, choice = self.router(tokens).softmax(-1).max(-1)
        order = choice.argsort()
        send = torch.bincount(choice, minlength=self.count)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send, group=self.group)
        arrived = Exchange.apply(tokens[order], send.tolist(), receive.tolist(), self.group)
        answers = Exchange.apply(self.expert(arrived), receive.tolist(), send.tolist(), self.group)
        out = x.clone()
        out[kept] = tokens + weight[:, None] * answers[order.argsort()]
        return out
