"""Trains a small classifier on made-up images, on several processes."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS = 120
BATCH = 8


class Images(Dataset):
    """Images that are drawn when they are asked for; one shard of them is stored compressed."""

    def __init__(self, count: int, shard: int) -> None:
        self.count = count
        self.compressed = shard == 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index)) + index % 10 / 3
        if self.compressed:
            image = decompress(image)
        return image, index % 10


def decompress(image: torch.Tensor) -> torch.Tensor:
    """The pixels of a compressed image, one by one."""
    total = 0
    for value in range(150_000):
        total = (total * 31 + value) % 65_521
    return image + total * 0.0


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(1024, 10)
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    data = Images(STEPS * BATCH * world, shard=rank)
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=False))
    for step, (images, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 40 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
