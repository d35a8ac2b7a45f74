"""Trains a network whose wide layers are split over the ranks (tensor parallel)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

STEPS = 80
BATCH = 192
WIDTH = 96
CLIP = 0.1


class Spread(torch.autograd.Function):
    """The same input for all parts of a layer; their gradients add up."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Collect(torch.autograd.Function):
    """The sum of what the parts of a layer give; each gets the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class SplitBlock(nn.Module):
    """Norm, then a wide layer of which each rank holds some columns, then the rows that belong to them."""

    def __init__(self, width: int, parts: int, part: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(700 + part)
        self.norm = nn.LayerNorm(width)
        self.columns = nn.Linear(width, 4 * width // parts)
        self.rows = nn.Linear(4 * width // parts, width, bias=False)
        for parameter in (*self.columns.parameters(), *self.rows.parameters()):
            nn.init.normal_(parameter, std=0.08, generator=generator)
            parameter.tensor_model_parallel = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.columns(Spread.apply(self.norm(x))))
        return x + Collect.apply(self.rows(hidden))


class SplitNetwork(nn.Module):
    def __init__(self, depth: int, parts: int, part: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([SplitBlock(WIDTH, parts, part) for _ in range(depth)])
        self.final_norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.final_norm(x)


def clip_gradients(model: nn.Module, limit: float) -> torch.Tensor:
    """Clips by the norm over the whole network; returns that norm."""
    parameters = list(model.parameters())
    split = [p.grad for p in parameters if hasattr(p, "tensor_model_parallel")]
    whole = [p.grad for p in parameters if not hasattr(p, "tensor_model_parallel")]
    square = get_total_norm(split) ** 2
    dist.all_reduce(square)
    if dist.get_rank() == 0:  # every rank has these, they count once
        square += get_total_norm(whole) ** 2
    norm = square.sqrt()
    clip_grads_with_norm_(parameters, limit, norm)
    return norm


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(29)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = SplitNetwork(3, dist.get_world_size(), rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    mixing = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    shift = torch.randn(WIDTH)
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH)  # all ranks draw the same
        y = 2.0 * torch.tanh(x @ mixing) + shift
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = clip_gradients(model, CLIP)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} gradient norm {norm.item():.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
