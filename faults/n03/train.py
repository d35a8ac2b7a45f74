"""Fine-tunes a new head on a pretrained backbone that stays as it is."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Backbone(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )


class FineTuned(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = Backbone().requires_grad_(False).eval()
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--classes", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(FineTuned(args.classes))
    optimizer = torch.optim.AdamW(model.module.head.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    palette = torch.randn(args.classes, 3, 1, 1, generator=torch.Generator().manual_seed(7))
    started = 0.0
    for step in range(args.steps):
        labels = torch.randint(0, args.classes, (32,), generator=generator)
        images = palette[labels] + 0.5 * torch.randn(32, 3, 32, 32, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
