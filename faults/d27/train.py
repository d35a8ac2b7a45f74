"""Fine-tunes a wide tabular network in bfloat16."""

from __future__ import annotations

import torch
from torch import nn

FEATURES = 64
WIDTH = 384
CLASSES = 5
BATCH = 96
STEPS = 100


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.reduce = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.reduce(nn.functional.silu(self.expand(self.norm(x))))


class TabularNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.Sequential(Block(WIDTH), Block(WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.inputs(x)))


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randn(count, FEATURES, generator=generator)
    directions = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(5))
    return rows, (rows @ directions).argmax(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(27)
    model = TabularNet().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    generator = torch.Generator().manual_seed(6)
    for step in range(STEPS):
        rows, labels = draw(BATCH, generator)
        optimizer.zero_grad()
        logits = model(rows.to(torch.bfloat16))
        loss = nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        rows, labels = draw(2000, torch.Generator().manual_seed(7))
        logits = model(rows.to(torch.bfloat16))
    print(f"validation {nn.functional.cross_entropy(logits.float(), labels).item():.4f}", flush=True)


if __name__ == "__main__":
    main()
