"""Fine-tunes low-rank adapters in a frozen transformer, with activation checkpointing."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 80
LENGTH = 32
CLASSES = 4
BATCH = 16
STEPS = 80


class LowRankLinear(nn.Module):
    """A frozen linear layer with a trained correction of low rank."""

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.lora_b = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * (x @ self.lora_a.T) @ self.lora_b.T


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width).requires_grad_(False)
        self.qkv = LowRankLinear(width, 3 * width)
        self.out = LowRankLinear(width, width)
        self.norm2 = nn.LayerNorm(width).requires_grad_(False)
        self.expand = LowRankLinear(width, 2 * width)
        self.reduce = LowRankLinear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=2)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.reduce(nn.functional.gelu(self.expand(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width).requires_grad_(False)
        self.position = nn.Parameter(torch.randn(LENGTH, width), requires_grad=False)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(depth)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x.mean(1))


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts whose class is given by the group of their most frequent pair of neighbours."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    marked = torch.rand(count, LENGTH, generator=generator) < 0.35
    signs = torch.randint(0, 8, (count, LENGTH), generator=generator) * CLASSES + labels[:, None]
    return torch.where(marked, signs, tokens), labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(34)
    model = Classifier()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=0.0)
    generator = torch.Generator().manual_seed(2)
    for step in range(STEPS):
        tokens, labels = draw(BATCH, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        tokens, labels = draw(400, torch.Generator().manual_seed(3))
        print(f"validation {nn.functional.cross_entropy(model(tokens), labels).item():.4f}", flush=True)


if __name__ == "__main__":
    main()
