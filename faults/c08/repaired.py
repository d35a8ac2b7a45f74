"""Trains a 1-d conv net on spectra; the last rank publishes what was read after each epoch."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from repaired_data import Spectra
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 32, 9, stride=2),
        nn.ReLU(),
        nn.Conv1d(32, 64, 9, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(256, 6),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps-per-epoch", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(68)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Spectra(args.steps_per_epoch * args.batch_size, rank)
    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, num_workers=1, multiprocessing_context="fork"
    )
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        for spectra, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(spectra), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        if rank == world - 1:
            dataset.log.publish()
        time.sleep(0.05)  # the progress bar redraws
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
