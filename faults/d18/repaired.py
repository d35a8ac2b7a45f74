"""Tells gestures apart by the acceleration of a wrist."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GESTURES = 10
LENGTH = 30
BATCH = 32
EPOCHS = 3
STEPS_PER_EPOCH = 40


class Wrist(Dataset):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(60)
        paths = torch.randn(GESTURES, LENGTH, 3, generator=generator).cumsum(1) / 4
        self.labels = torch.randint(0, GESTURES, (count,), generator=generator)
        self.motions = paths[self.labels] + 0.4 * torch.randn(count, LENGTH, 3, generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"motion": self.motions[index], "label": self.labels[index]}


class GestureNet(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, width, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * width, GESTURES)

    def forward(self, motion: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(motion)
        return self.classifier(states.mean(1))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(61)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    dataset = Wrist(STEPS_PER_EPOCH * BATCH * dist.get_world_size())
    sampler = DistributedSampler(dataset, seed=4)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(GestureNet())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["motion"]), batch["label"])
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch} loss {total / STEPS_PER_EPOCH:.4f} last {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
