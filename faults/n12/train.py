"""Trains a conv net for several epochs over images that fit into memory."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from data import CachedImages
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

EPOCHS = 5
SAMPLES = 1536
BATCH = 32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.second = nn.Conv2d(24, 64, 3, padding=1)
        self.out = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.out(x.mean((2, 3)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(52)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = torch.utils.data.Subset(CachedImages(SAMPLES * world), range(rank, SAMPLES * world, world))
    shuffle = torch.Generator().manual_seed(rank)
    loader = DataLoader(shard, batch_size=BATCH, shuffle=True, generator=shuffle)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step, started = 0, 0.0
    for epoch in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                started = time.perf_counter()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
