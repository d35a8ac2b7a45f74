"""Classifies spectrograms; runs as one process with loader workers."""

from __future__ import annotations

import math
import time

import placement
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 480
BATCH = 16


class Clips(Dataset):
    """Audio clips, turned into log spectra on read."""

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = index % 8
        wave = [math.sin(0.01 * (label + 1) * t) + 0.1 * math.sin(0.37 * t + index) for t in range(2048)]
        return spectrum(wave), label


def spectrum(wave: list[float], bands: int = 24, hop: int = 64) -> torch.Tensor:
    """Log energy per band and frame, [bands, frames]."""
    frames = []
    for start in range(0, len(wave) - hop + 1, hop):
        frame = wave[start : start + hop]
        row = []
        for band in range(bands):
            omega = 2.0 * math.pi * (band + 1) / hop
            coefficient, before, last = 2.0 * math.cos(omega), 0.0, 0.0
            for value in frame[::4]:
                before, last = last, value + coefficient * last - before
            row.append(math.log1p(abs(last * last + before * before - coefficient * last * before)))
        frames.append(row)
    return torch.tensor(frames).T


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(24, 96, 5, padding=2)
        self.mix = nn.Conv1d(96, 96, 5, padding=2)
        self.head = nn.Linear(96, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.mix(torch.relu(self.conv(x))))
        return self.head(x.mean(2))


def main() -> None:
    placement.bind(0)
    torch.set_num_threads(1)
    torch.manual_seed(6)
    loader = DataLoader(Clips(), batch_size=BATCH, shuffle=True, num_workers=4)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = 0.0
    for step, (clips, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(clips), labels)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if step % 80 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


if __name__ == "__main__":
    main()
