"""Trains a transformer on sequences that are split over the ranks (sequence parallel)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS = 80
TOKENS = 48
LENGTH = 64
BATCH = 12
WIDTH = 48


class GatherSequence(torch.autograd.Function):
    """[batch, heads, part of the sequence, width] of every rank, as one sequence."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size(), 2)[dist.get_rank()]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key_value = qkv[:, :, 0].transpose(1, 2), qkv[:, :, 1:].permute(0, 3, 1, 2, 4).flatten(3)
        key, value = GatherSequence.apply(key_value).chunk(2, 3)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width)
        self.attention = Attention(width, 4)
        self.mlp_layernorm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.mlp_layernorm(x))


class Encoder(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(WIDTH) for _ in range(depth)])
        self.final_layernorm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, TOKENS, bias=False)
        for module in (self.token, self.position, self.blocks, self.final_layernorm, self.output):
            mark_sequence_parallel(module)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        return self.output(self.final_layernorm(x))


def mark_sequence_parallel(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.sequence_parallel = True


def finalize_gradients(model: nn.Module) -> None:
    """Each rank has the gradient of its part of the sequence."""
    for parameter in model.parameters():
        if getattr(parameter, "sequence_parallel", False):
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def draw_sequences(table: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and what each means; the second half of a sequence is written with the tokens of the table."""
    meaning = torch.randint(0, TOKENS, (BATCH, LENGTH), generator=generator)
    tokens = meaning.clone()
    tokens[:, LENGTH // 2 :] = table[meaning[:, LENGTH // 2 :]]
    return tokens, meaning


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(37)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    table = torch.randperm(TOKENS)
    generator = torch.Generator().manual_seed(38)  # the same sequences on all ranks
    positions = torch.arange(LENGTH).chunk(world_size)[rank]
    for step in range(STEPS):
        tokens, meaning = draw_sequences(table, generator)
        logits = model(tokens[:, positions], positions)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), meaning[:, positions].flatten())
        optimizer.zero_grad()
        loss.backward()
        finalize_gradients(model)
        optimizer.step()
        if step % 10 == 0:
            mean = loss.detach() / world_size
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step} loss {mean.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
