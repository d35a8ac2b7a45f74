"""Windows of a bearing's vibration with the wear that was measured afterwards."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

SAMPLES = 128
AXES = 3


class Windows(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.wear = torch.rand(count, generator=generator)
        phase = 6.3 * torch.rand(count, 1, AXES, generator=generator)
        time = torch.arange(SAMPLES)[None, :, None]
        hum = torch.sin(0.7 * time + phase) * (0.4 + 1.6 * self.wear[:, None, None])
        self.signals = hum + 0.5 * torch.randn(count, SAMPLES, AXES, generator=generator)

    def __len__(self) -> int:
        return len(self.wear)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"signal": self.signals[index], "wear": self.wear[index]}


def collate(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Signals as [batch, axes, samples] and the wear of each."""
    signals = torch.cat([item["signal"] for item in items]).t().unsqueeze(0)
    return {"signal": signals, "wear": torch.stack([item["wear"] for item in items])}
