"""Trains a likelihood approximation network."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from repaired_data import LikelihoodRows
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

STEPS = 240
BATCH = 1024


class Trainer:
    def __init__(self, model: nn.Module, loader: DataLoader) -> None:
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.history: list[float] = []

    def step(self, features: torch.Tensor, target: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss = nn.functional.huber_loss(self.model(features).squeeze(1), target)
        loss.backward()
        self.optimizer.step()
        self.history.append(loss.item())

    def fit(self) -> float:
        started = 0.0
        for number, (features, target) in enumerate(self.loader):
            self.step(features, target)
            if number == 0:
                started = time.perf_counter()
        return time.perf_counter() - started


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(26)
    dist.init_process_group("gloo")
    dataset = LikelihoodRows(20_000, 420, BATCH, STEPS * dist.get_world_size())
    loader = DataLoader(dataset, batch_size=None, sampler=DistributedSampler(dataset), num_workers=0)
    network = nn.Sequential(nn.Linear(48, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    trainer = Trainer(DistributedDataParallel(network), loader)
    seconds = trainer.fit()
    if dist.get_rank() == 0:
        print(f"last loss {trainer.history[-1]:.4f}")
        print(f"train_seconds={seconds:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
