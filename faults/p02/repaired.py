"""Trains a digit classifier."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from repaired_data import ImageFolder
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

STEPS = 260
BATCH = 32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.body = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.body(F.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    dataset = ImageFolder(STEPS * BATCH * dist.get_world_size())
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset), num_workers=1)
    model = DDP(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    started = 0.0
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
