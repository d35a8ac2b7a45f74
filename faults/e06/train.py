"""Trains a patch transformer to find vehicles; each process reads one camera."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from losses import box_loss, objectness_loss
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

FRAMES = 960
BATCH = 12
GRID, PATCH = 6, 8
# Vehicles in a frame, on average: the ring road, the car park.
TRAFFIC = (2.5, 0.3)


class Camera(IterableDataset):
    """Frames as patches [cells, pixels], with one box [cells, 4] for each cell that holds a vehicle."""

    def __init__(self, number: int) -> None:
        self.traffic = TRAFFIC[number % len(TRAFFIC)]
        self.generator = torch.Generator().manual_seed(34 + number)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        cells = GRID * GRID
        for _ in range(FRAMES):
            taken = (torch.rand(cells, generator=self.generator) < self.traffic / cells).float()
            boxes = torch.rand(cells, 4, generator=self.generator) * taken[:, None]
            pixels = torch.randn(cells, PATCH * PATCH, generator=self.generator)
            pixels[:, :16] += 2.0 * taken[:, None]
            pixels[:, 16:20] += 3.0 * boxes
            yield pixels, taken, boxes


class Detector(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH, width)
        self.places = nn.Parameter(0.02 * torch.randn(GRID * GRID, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.score = nn.Linear(width, 1)
        self.box = nn.Linear(width, 4)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.encoder(self.patches(pixels) + self.places)
        return self.score(x).squeeze(-1), self.box(x)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(106)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    loader = DataLoader(Camera(rank), batch_size=BATCH)
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for step, (pixels, taken, boxes) in enumerate(loader):
        scores, found = model(pixels)
        loss = objectness_loss(scores, taken) + 2.0 * box_loss(found, boxes, taken)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step} loss {mean.item() / dist.get_world_size():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
