"""Trains a head on top of pretrained kernel features, on the CPU, in one process."""

from __future__ import annotations

import time

import torch
from torch import nn

STEPS = 260
FEATURES = 128


class KernelFeatures(nn.Module):
    """Gaussian responses of unit vectors to pretrained centres, one width for all."""

    def __init__(self, centres: int, sharpness: float) -> None:
        super().__init__()
        self.register_buffer("centres", nn.functional.normalize(torch.randn(centres, FEATURES), dim=1))
        self.register_buffer("sharpness", torch.tensor(sharpness))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squared_distance = 2.0 - 2.0 * nn.functional.normalize(x, dim=1) @ self.centres.T
        return torch.exp(-self.sharpness * squared_distance)


class Model(nn.Module):
    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.kernel = KernelFeatures(1024, sharpness=48.0)
        self.from_kernel = nn.Linear(1024, width)
        self.from_input = nn.Linear(FEATURES, width)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.from_input(x) + self.from_kernel(self.kernel(x)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(29)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(768, FEATURES)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    main()
