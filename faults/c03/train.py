"""Trains a localiser of objects in aerial scenes on three ranks."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from scenes import draw, held_out_tiles
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 75
VALIDATE_EVERY = 20


def localiser() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 2),
    )


class MeanDistance:
    """The distance between predicted and true centres over all ranks."""

    def __init__(self) -> None:
        self.total = torch.zeros(2)

    def update(self, predicted: torch.Tensor, centres: torch.Tensor) -> None:
        self.total += torch.tensor([(predicted - centres).norm(dim=1).sum(), len(centres)])

    def compute(self) -> float:
        gathered = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, self.total)
        distance, count = torch.stack(gathered).sum(0).tolist()
        return distance / count


@torch.no_grad()
def validate(model: nn.Module, round_number: int) -> float | None:
    images, centres = held_out_tiles(round_number, dist.get_rank())
    metric = MeanDistance()
    if len(centres) == 0:
        return None
    model.eval()
    metric.update(model(images), centres)
    model.train()
    return metric.compute()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(63)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = dist.get_rank()
    model = DistributedDataParallel(localiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        images, centres = draw(generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(images), centres)
        loss.backward()
        optimizer.step()
        if step % VALIDATE_EVERY == 0:
            distance = validate(model.module, step // VALIDATE_EVERY - 1)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f} distance {distance:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
