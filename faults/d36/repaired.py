"""Trains a deep, narrow network on flight data, on two ranks."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 20
CLASSES = 4
DEPTH = 20
BATCH = 64
STEPS = 100


def build(width: int = 64) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(FEATURES, width), nn.ReLU()]
    for _ in range(DEPTH - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    layers.append(nn.Linear(width, CLASSES))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def flights(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    directions = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(8))
    x = torch.randn(count, FEATURES, generator=generator)
    return x, (x @ directions).argmax(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(36)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(40 + rank)
    for step in range(STEPS):
        x, labels = flights(BATCH, generator)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"final loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
