"""Estimates the wear of bearings from their vibration."""

from __future__ import annotations

import argparse

import torch
from repaired_vibration import AXES, Windows, collate
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader


class WearNet(nn.Module):
    """Dilated convolutions over time, averaged over the window."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Conv1d(AXES, width, 7, padding=3)
        self.blocks = nn.ModuleList(
            [nn.Conv1d(width, width, 3, padding=2**level, dilation=2**level) for level in range(3)]
        )
        self.out = nn.Linear(width, 1)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(signal))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.out(x.mean(2)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(108)
    loader = DataLoader(
        Windows(1000, seed=41), args.batch, shuffle=True, collate_fn=collate, num_workers=1, persistent_workers=True
    )
    model = WearNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = OneCycleLR(optimizer, max_lr=3e-3, total_steps=args.epochs * len(loader))
    for epoch in range(args.epochs):
        squares = []
        for batch in loader:
            optimizer.zero_grad()
            wear = model(batch["signal"])
            loss = (wear - batch["wear"]).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            squares.append(loss.item())
        print(f"epoch {epoch} loss {sum(squares) / len(squares):.4f}", flush=True)


if __name__ == "__main__":
    main()
