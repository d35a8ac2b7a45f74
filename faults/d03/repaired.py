"""Trains a character model with parameters sharded over the ranks."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 90
CHARACTERS = 64
LENGTH = 40
BATCH = 16


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 3 * width)
        self.out = nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(nn.functional.gelu(self.fc(self.ln_2(x))))


class CharModel(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(CHARACTERS, width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList([DecoderBlock(width, 4) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The mean loss over all characters but the first."""
        x = self.token(text[:, :-1]) + self.position
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten())


def draw_text(follow: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Lines in which a character follows another as the table `follow` says, or, one time in ten, any."""
    line = [torch.randint(0, CHARACTERS, (BATCH,), generator=generator)]
    for _ in range(LENGTH):
        odd = torch.rand(BATCH, generator=generator) < 0.1
        line.append(torch.where(odd, torch.randint(0, CHARACTERS, (BATCH,), generator=generator), follow[line[-1]]))
    return torch.stack(line, 1)


def shard(model: CharModel) -> CharModel:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(12)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = CharModel()
    model = shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    follow = torch.randperm(CHARACTERS)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        text = draw_text(follow, generator)
        optimizer.zero_grad()
        loss = model(text)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f} perplexity {math.exp(loss.item()):.1f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
