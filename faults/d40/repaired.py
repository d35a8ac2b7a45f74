"""Predicts the porosity of castings from process values."""

from __future__ import annotations

import torch
from torch import nn

FEATURES = 16
BATCH = 1024
STEPS = 110
MEAN, SCALE = 0.012, 1e-3


class PorosityNet(nn.Module):
    def __init__(self, width: int = 160) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(FEATURES, width)
        self.hidden2 = nn.Linear(width, width)
        self.hidden3 = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        self.act1, self.act2, self.act3 = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act1(self.hidden1(x))
        x = self.act2(self.hidden2(x))
        x = self.act3(self.hidden3(x))
        return self.out(x).squeeze(1)


def castings(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Process values within their limits (-1 to 1), and the share of pores."""
    slope = torch.randn(FEATURES, generator=torch.Generator().manual_seed(2))
    x = 2.0 * torch.rand(count, FEATURES, generator=generator) - 1.0
    signal = 0.5 * x @ slope + torch.sin(3.0 * x[:, 0])
    return x, 0.012 + 1e-3 * signal / 1.4


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(40)
    model = PorosityNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(4)
    for step in range(STEPS):
        x, porosity = castings(BATCH, generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), (porosity - MEAN) / SCALE)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3e}", flush=True)
    model.eval()
    with torch.no_grad():
        x, porosity = castings(2000, torch.Generator().manual_seed(5))
        predicted = MEAN + SCALE * model(x)
    explained = 1.0 - (predicted - porosity).var() / porosity.var()
    print(f"explained variance {explained.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
