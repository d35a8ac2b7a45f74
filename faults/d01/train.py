"""Fits a small network to tabular loan records."""

from __future__ import annotations

import torch
from torch import nn

RECORDS = 4096
COLUMNS = 48
BATCH = 256
EPOCHS = 6


def load_records() -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised columns, and whether the loan was paid back."""
    generator = torch.Generator().manual_seed(17)
    columns = torch.randn(RECORDS, COLUMNS, generator=generator)
    weights = torch.randn(COLUMNS, generator=generator) / COLUMNS**0.5
    score = columns @ weights + 0.5 * columns[:, 0] * columns[:, 1] + 0.2 * torch.randn(RECORDS, generator=generator)
    return columns, (score > 0).float()


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(COLUMNS, 384),
        nn.Tanh(),
        nn.Linear(384, 384),
        nn.Tanh(),
        nn.Linear(384, 1),
    )


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, columns: torch.Tensor, paid: torch.Tensor, order: torch.Tensor
) -> float:
    total = 0.0
    for rows in order.split(BATCH):
        logits = model(columns[rows]).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, paid[rows])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(order)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(2)
    columns, paid = load_records()
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)
    generator = torch.Generator().manual_seed(3)
    for epoch in range(EPOCHS):
        order = torch.randperm(RECORDS, generator=generator)
        loss = train_epoch(model, optimizer, columns, paid, order)
        with torch.no_grad():
            accuracy = ((model(columns).squeeze(1) > 0).float() == paid).float().mean().item()
        print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
