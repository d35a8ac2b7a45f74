"""Trains a sharded transformer (FSDP2) and reports the perplexity of a held-out set."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from metrics import Perplexity
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 90
VALIDATE_EVERY = 30
VOCABULARY = 96


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList([Layer(width, 4) for _ in range(depth)])
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])


@torch.no_grad()
def validate(model: nn.Module, held_out: list[torch.Tensor], step: int) -> None:
    model.eval()
    perplexity = Perplexity()
    for tokens in held_out:
        perplexity.update(loss_of(model, tokens), tokens.numel())
    model.train()
    if dist.get_rank() == 0:
        print(f"step {step} perplexity {perplexity.compute():.2f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(62)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    held_out = [torch.randint(0, VOCABULARY, (32, 33), generator=generator) for _ in range(4)]
    for step in range(1, STEPS + 1):
        tokens = torch.randint(0, VOCABULARY, (32, 33), generator=generator)
        optimizer.zero_grad()
        loss = loss_of(model, tokens)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % VALIDATE_EVERY == 0:
            validate(model, held_out, step)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
