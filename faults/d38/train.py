"""Trains a mixture of experts on two ranks; each rank works on one half of every sequence."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY = 64
LENGTH = 64
BATCH = 8
EXPERTS = 4
STEPS = 90


def shared(module: nn.Module) -> nn.Module:
    """Marks parameters that every rank uses for its part of the sequence."""
    for parameter in module.parameters():
        parameter.sequence_parallel = True
    return module


class Router(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(nn.functional.linear(x, self.weight), dim=-1)


class Expert(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class MoeLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = shared(nn.LayerNorm(width))
        self.router = Router(width)
        self.experts = shared(nn.ModuleList([Expert(width) for _ in range(EXPERTS)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        weights = self.router(y)
        outputs = torch.stack([expert(y) for expert in self.experts], dim=-1)
        return x + (outputs * weights.unsqueeze(-2)).sum(-1)


class LanguageModel(nn.Module):
    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embedding = shared(nn.Embedding(VOCABULARY, width))
        self.layers = nn.ModuleList([MoeLayer(width) for _ in range(depth)])
        self.head = shared(nn.Linear(width, VOCABULARY))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def reduce_gradients(model: nn.Module) -> None:
    """Averages the gradients of the parts of the sequence, in one flat buffer."""
    gradients = [p.grad for p in model.parameters() if getattr(p, "sequence_parallel", False)]
    flat = torch.cat([gradient.view(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def write_text(generator: torch.Generator) -> torch.Tensor:
    follows = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(1))
    column = torch.randint(0, VOCABULARY, (BATCH,), generator=generator)
    text = [column]
    for _ in range(LENGTH):
        jumps = torch.rand(BATCH, generator=generator) < 0.1
        column = torch.where(jumps, torch.randint(0, VOCABULARY, (BATCH,), generator=generator), follows[column])
        text.append(column)
    return torch.stack(text, 1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(38)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = LanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(5)
    part = LENGTH // world_size
    for step in range(STEPS):
        text = write_text(generator)
        tokens = text[:, rank * part : (rank + 1) * part]
        targets = text[:, rank * part + 1 : (rank + 1) * part + 1]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), targets)
        loss.backward()
        reduce_gradients(model)
        optimizer.step()
        if rank == 0 and step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"rank {rank} final loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
