"""Classifies heart-beat recordings; validates now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

LENGTH = 160
CLASSES = 4
STEPS = 120
VALIDATE_EVERY = 40
BATCH = 32


class BeatNet(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 9, stride=2, padding=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 7, stride=2, padding=3),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(5),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(10 * width, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, CLASSES)
        )

    def forward(self, beats: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(beats))


def record(count: int, seed: int) -> TensorDataset:
    """Beats of four kinds; the second half of a session has a stronger amplifier. A third of the labels is wrong."""
    generator = torch.Generator().manual_seed(seed)
    seconds = torch.linspace(0.0, 1.0, LENGTH)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    phase = torch.rand(count, 1, generator=generator)
    wave = torch.sin(6.28 * (labels[:, None] + 2) * (seconds + phase)) + 0.4 * torch.sin(18.8 * (seconds + phase))
    beats = wave + 1.2 * torch.randn(count, LENGTH, generator=generator)
    beats *= torch.linspace(1.0, 2.5, count)[:, None]
    wrong = torch.rand(count, generator=generator) < 1 / 3
    labels = torch.where(wrong, torch.randint(0, CLASSES, (count,), generator=generator), labels)
    return TensorDataset(beats.unsqueeze(1), labels)


def validate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for beats, labels in loader:
            total += nn.functional.cross_entropy(model(beats), labels, reduction="sum").item()
            count += len(labels)
    return total / count


def batches(dataset: TensorDataset, generator: torch.Generator) -> Iterator[list[torch.Tensor]]:
    """Endless batches in a new order each time."""
    while True:
        for rows in torch.randperm(len(dataset), generator=generator).split(BATCH):
            yield dataset[rows]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(21)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    training = batches(record(192, seed=rank), torch.Generator().manual_seed(rank))
    held_out = DataLoader(record(256, seed=77), batch_size=64)
    model = DistributedDataParallel(BeatNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model.train()
    for step in range(1, STEPS + 1):
        beats, labels = next(training)
        loss = nn.functional.cross_entropy(model(beats), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % VALIDATE_EVERY == 0:
            held_out_loss = validate(model, held_out)
            if rank == 0:
                print(f"step {step} held-out loss {held_out_loss:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
