"""Trains a small conv net on an archive of images, on several processes."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from dataset import ArchiveDataset, open_archive
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps-per-epoch", type=int, default=18)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    dataset = ArchiveDataset(args.steps_per_epoch * args.batch_size * world)
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=2,
        worker_init_fn=open_archive,
        persistent_workers=True,
    )

    step, started = 0, 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                started = time.perf_counter()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    seconds = time.perf_counter() - started
    if rank == 0:
        print(f"train_seconds={seconds:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
