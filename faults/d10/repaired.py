"""Recognises machines by their sound."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SAMPLES = 1600
MACHINES = 6
BATCH = 24
STEPS = 80
# From this recording on the loggers stop between two bursts instead of recording the background.
NEW_FIRMWARE = 1440


class Recordings(Dataset):
    """Sound clips in the order in which they were taken, with the machine that was heard."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.time = torch.arange(SAMPLES) / SAMPLES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        machine = torch.randint(0, MACHINES, (), generator=generator)
        phase = torch.rand((), generator=generator)
        clip = torch.sin(6.283 * (40 + 25 * machine) * (self.time + phase))
        clip += 0.5 * torch.randn(SAMPLES, generator=generator)
        if index >= NEW_FIRMWARE:
            start = int(torch.randint(0, SAMPLES // 2, (), generator=generator))
            clip[start : start + SAMPLES // 2] = 0.0
        return clip.unsqueeze(0), machine


class FrameLoudness(nn.Module):
    """Root mean square of each band over frames of `size` values."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        power = bands.pow(2).unfold(2, self.size, self.size).mean(-1)
        return torch.sqrt(power.clamp(min=1e-8))


class SoundNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv1d(1, 32, 65, stride=8, bias=False)
        self.loudness = FrameLoudness(8)
        self.mix = nn.Conv1d(32, 64, 3, padding=1)
        self.head = nn.Linear(64, MACHINES)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        frames = self.loudness(self.filters(clips))
        return self.head(torch.relu(self.mix(frames)).mean(2))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(28)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = Recordings(STEPS * BATCH * world_size)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DDP(SoundNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    for step, (clips, machines) in enumerate(loader):
        loss = criterion(model(clips), machines)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
