"""Trains a recommendation tower on the GPU and keeps running statistics of each part of the loss."""

from __future__ import annotations

import time

import torch
from torch import nn

STEPS = 400
TASKS = 48


class Tower(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(width, 1) for _ in range(TASKS)])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        shared = self.trunk(x)
        return [head(shared).squeeze(1) for head in self.heads]


def multi_task_loss(outputs: list[torch.Tensor], targets: torch.Tensor, running: list[float]) -> torch.Tensor:
    total = outputs[0].new_zeros(())
    for task, output in enumerate(outputs):
        part = nn.functional.mse_loss(output, targets[:, task])
        running[task] = 0.99 * running[task] + 0.01 * part.item()
        total = total + part / (running[task] + 1e-6)
    return total


def main() -> None:
    torch.manual_seed(10)
    device = torch.device("cuda")
    model = Tower().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    running = [1.0] * TASKS
    started = 0.0
    for step in range(STEPS):
        x = torch.randn(2048, 128, device=device)
        targets = torch.randn(2048, TASKS, device=device)
        optimizer.zero_grad()
        loss = multi_task_loss(model(x), targets, running)
        loss.backward()
        optimizer.step()
        if step == 0:
            torch.cuda.synchronize()
            started = time.perf_counter()
    torch.cuda.synchronize()
    print(f"mean task loss {sum(running) / TASKS:.4f}")
    print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    main()
