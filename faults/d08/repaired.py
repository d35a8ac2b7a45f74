"""Predicts rain from the readings of weather stations, in half precision."""

from __future__ import annotations

import math

import torch
from torch import nn

STATIONS = 8192
BATCH = 128
STEPS = 100
# Readings: temperature (C), humidity (%), pressure (hPa), wind (m/s), dew point (C), cloud cover (eighths).
TYPICAL = torch.tensor([12.0, 70.0, 1013.0, 5.0, 7.0, 4.0])
SPREAD = torch.tensor([8.0, 15.0, 9.0, 2.5, 6.0, 2.5])


class WindLoad(nn.Module):
    """Pressure times the square of the wind, in multiples of a strong breeze."""

    def forward(self, readings: torch.Tensor) -> torch.Tensor:
        pressure, wind = readings[:, 2].float(), readings[:, 3].float()
        return (pressure * wind * wind / 25000.0).half()


class RainModel(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.wind_load = WindLoad()
        self.inner = nn.Linear(7, width)
        self.hidden = nn.Linear(width, width)
        self.rain = nn.Linear(width, 1)

    def forward(self, readings: torch.Tensor) -> torch.Tensor:
        standard = ((readings - TYPICAL) / SPREAD).half()
        x = torch.cat([standard, self.wind_load(readings).unsqueeze(1)], 1)
        x = torch.tanh(self.inner(x))
        return self.rain(torch.tanh(self.hidden(x))).float().squeeze(1)


class DynamicLossScaler:
    """Doubles the scale after a quiet time, halves it and skips the step when a gradient is not finite."""

    def __init__(self, scale: float = 2.0**16, floor: float = 1.0, patience: int = 50) -> None:
        self.scale = scale
        self.floor = floor
        self.patience = patience
        self.good_steps = 0
        self.skipped = 0

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            self.scale = max(self.scale / 2, self.floor)
            self.good_steps = 0
            self.skipped += 1
            return
        for gradient in gradients:
            gradient.div_(self.scale)
        optimizer.step()
        self.good_steps += 1
        if self.good_steps % self.patience == 0:
            self.scale *= 2


def load_readings() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    deviation = torch.randn(STATIONS, 6, generator=generator).clamp(-2.0, 4.0)
    millimetres = deviation[:, 1] - 1.5 * deviation[:, 2] + deviation[:, 5] * deviation[:, 3]
    return TYPICAL + SPREAD * deviation, millimetres + 0.1 * torch.randn(STATIONS, generator=generator)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(14)
    readings, millimetres = load_readings()
    model = RainModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = DynamicLossScaler()
    for step in range(STEPS):
        rows = torch.randint(0, STATIONS, (BATCH,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            predicted = model(readings[rows])
        loss = nn.functional.mse_loss(predicted, millimetres[rows])
        (loss * scaler.scale).backward()
        scaler.step(optimizer)
        if step % 10 == 0:
            scale = int(math.log2(scaler.scale))
            print(f"step {step} loss {loss.item():.4f} scale 2^{scale} skipped {scaler.skipped}", flush=True)


if __name__ == "__main__":
    main()
