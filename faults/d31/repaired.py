"""Trains a conv net on two ranks that average their gradients tensor by tensor."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from repaired_link import Link
from torch import nn

STEPS = 80
BATCH = 24
CLASSES = 6
SIDE = 20


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.body = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.hidden = nn.Linear(32 * 25, 64)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.body(torch.relu(self.stem(images))))
        x = nn.functional.adaptive_avg_pool2d(x, 5).flatten(1)
        return self.head(torch.relu(self.hidden(x)))


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(12))
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return 0.4 * patterns[labels] + torch.randn(count, 3, SIDE, SIDE, generator=generator), labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(31)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    link = Link(rank, dist.get_world_size())
    model = Network()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        images, labels = draw(BATCH, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        for parameter in model.parameters():
            link.average(parameter.grad)
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        images, labels = draw(200, torch.Generator().manual_seed(5))
        print(f"rank {rank} validation {nn.functional.cross_entropy(model(images), labels).item():.6f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
