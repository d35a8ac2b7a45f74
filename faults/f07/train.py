"""Trains a head on top of a pretrained trunk, on the CPU, in one process."""

from __future__ import annotations

import time

import torch
from torch import nn

STEPS = 120


class Trunk(nn.Module):
    """Pretrained layers; the context branch was trained for long with weight decay."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.enter = nn.Linear(64, width)
        self.context = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.enter(x))
        return torch.relu(self.mix(hidden) + self.context(hidden))


def load_pretrained() -> Trunk:
    trunk = Trunk()
    decay_steps, decay = 9000, 0.01
    with torch.no_grad():
        trunk.context.weight.mul_((1.0 - decay) ** decay_steps)
        trunk.context.bias.zero_()
    return trunk.requires_grad_(False)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(29)
    trunk, head = load_pretrained(), nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    model = nn.Sequential(trunk, head)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(640, 64)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    main()
