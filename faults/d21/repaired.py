"""Forecasts a heat meter with an LSTM; training windows are sampled from a long recording."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

PAST, AHEAD = 48, 8
EPOCHS = 3
BATCH = 48
WINDOWS = 40 * BATCH


def recording(hours: int, seed: int) -> np.ndarray:
    """Day and week cycles of drifting strength, with weather on top."""
    rng = np.random.RandomState(seed)
    hour = np.arange(hours)
    weather = np.convolve(rng.normal(0, 1, hours + 23), np.hanning(24) / 6, mode="valid")
    strength = 1.0 + 0.5 * np.sin(hour / 311.0)
    day = strength * np.sin(hour * 2 * np.pi / 24) + 0.4 * np.sin(hour * 2 * np.pi / 12 + 1.0)
    return (day + 0.5 * np.cos(hour * 2 * np.pi / 168) + weather).astype(np.float32)


class Windows(Dataset):
    """Windows at random places of the recording, with a random gain and some sensor noise."""

    def __init__(self, series: np.ndarray, seed: int) -> None:
        self.series = series
        self.rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return WINDOWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.rng.randint(0, len(self.series) - PAST - AHEAD)
        window = self.series[start : start + PAST + AHEAD] * np.float32(self.rng.uniform(0.9, 1.1))
        past = window[:PAST] + self.rng.normal(0, 0.1, PAST).astype(np.float32)
        return torch.from_numpy(past).unsqueeze(1), torch.from_numpy(window[PAST:])


def seed_worker(worker: int) -> None:
    info = get_worker_info()
    info.dataset.rng = np.random.RandomState(info.seed % 2**32)


class Forecaster(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, AHEAD))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(past)
        return self.head(states[:, -1])


@torch.no_grad()
def validate(model: Forecaster, series: np.ndarray) -> float:
    places = range(0, len(series) - PAST - AHEAD, 5)
    windows = torch.stack([torch.from_numpy(series[start : start + PAST + AHEAD]) for start in places])
    model.eval()
    error = nn.functional.mse_loss(model(windows[:, :PAST].unsqueeze(2)), windows[:, PAST:]).item()
    model.train()
    return error


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(21)
    windows = Windows(recording(6000, seed=1), seed=3)
    loader = DataLoader(windows, batch_size=BATCH, num_workers=2, worker_init_fn=seed_worker)
    held_out = recording(3000, seed=2)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        for step, (past, future) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(past), future)
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} validation {validate(model, held_out):.4f}", flush=True)


if __name__ == "__main__":
    main()
