"""Trains a classifier of parts; each rank reads the camera of one production line."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 90
BATCH = 24
CLASSES = 6
SIDE = 20
# Brightness and contrast of the cameras.
CAMERAS = ((0.0, 1.0), (0.2, 1.15))


def photograph(labels: torch.Tensor, camera: int, generator: torch.Generator) -> torch.Tensor:
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    brightness, contrast = CAMERAS[camera]
    images = 0.5 * patterns[labels] + torch.randn(len(labels), 3, SIDE, SIDE, generator=generator)
    return images * contrast + brightness


class PartNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(5),
        )
        self.classifier = nn.Linear(800, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


@torch.no_grad()
def validate(model: nn.Module) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(99)
    labels = torch.randint(0, CLASSES, (128,), generator=generator)
    images = torch.cat([photograph(labels[:64], 0, generator), photograph(labels[64:], 1, generator)])
    model.eval()
    logits = model(images)
    model.train()
    return nn.functional.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(23)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(PartNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(model(photograph(labels, rank, generator)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 29:
            validation, accuracy = validate(model)
            print(
                f"rank {rank} step {step} loss {loss.item():.4f} validation {validation:.4f} accuracy {accuracy:.3f}",
                flush=True,
            )
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
