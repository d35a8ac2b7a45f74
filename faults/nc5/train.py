"""Trains a conv net; rank 0 evaluates it thoroughly in the middle while the others wait."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120
EVALUATE_AT = 60
EVALUATION_SECONDS = 15.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.out = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.norm(self.first(x)))))
        return self.out(x.mean((2, 3)))


@torch.no_grad()
def evaluate(model: nn.Module) -> float:
    """Agreement with shifted images, on as many batches as fit into the time."""
    model.eval()
    generator = torch.Generator().manual_seed(7)
    until = time.monotonic() + EVALUATION_SECONDS
    same, seen = 0, 0
    while time.monotonic() < until:
        images = torch.randn(64, 3, 32, 32, generator=generator)
        same += int((model(images).argmax(1) == model(images.roll(1, 3)).argmax(1)).sum())
        seen += len(images)
    model.train()
    return same / seen


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(85)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        images = torch.randn(48, 3, 32, 32, generator=generator)
        labels = torch.randint(0, 10, (48,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == EVALUATE_AT:
            if rank == 0:
                print(f"step {step} agreement {evaluate(model.module):.3f}", flush=True)
            dist.barrier()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
