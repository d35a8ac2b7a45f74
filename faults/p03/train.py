"""Trains an LSTM on sequences that live in an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from store import ObjectStore

EPOCHS = 3
STEPS = 45
BATCH = 10


class Sequences(Dataset):
    def __init__(self, store: ObjectStore, samples: int) -> None:
        self.store = store
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = np.frombuffer(self.store.get(index), dtype=np.float32).reshape(24, 32)
        sequence = torch.from_numpy(values.copy())
        return sequence, sequence.mean(0)[:4]


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 160, num_layers=2, batch_first=True)
        self.out = nn.Linear(160, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(x)
        return self.out(hidden[:, -1])


def run(cache: Path) -> None:
    dataset = Sequences(ObjectStore(cache), STEPS * BATCH * dist.get_world_size())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(Forecaster())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step, started = 0, 0.0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                started = time.perf_counter()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {time.perf_counter() - started:.1f} s, loss {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(2)
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="cache-") if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    try:
        run(Path(folder[0]))
        dist.barrier()
    finally:
        if int(os.environ["RANK"]) == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
