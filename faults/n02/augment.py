"""Random rotations of the feature space, each built when it is first used."""

from __future__ import annotations

import torch


class Rotations:
    def __init__(self, count: int, features: int) -> None:
        self.count = count
        self.features = features
        self.ready: dict[int, torch.Tensor] = {}

    def get(self, number: int) -> torch.Tensor:
        key = number % self.count
        if key not in self.ready:
            noise = torch.randn(5 * self.features, self.features, generator=torch.Generator().manual_seed(key))
            basis, _ = torch.linalg.qr(noise)
            self.ready[key] = torch.linalg.qr(basis[: self.features])[0]
        return self.ready[key]
