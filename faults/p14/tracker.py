"""Writes distributions of weights and gradients for the experiment page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

BINS = 64


class Tracker:
    """Watches a model: every `interval` backward passes it writes histograms of all parameters."""

    def __init__(self, path: Path, interval: int) -> None:
        self.file = path.open("w")
        self.interval = interval
        self.seen: dict[str, int] = {}

    def watch(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            parameter.register_hook(self._hook(name, parameter))

    def _hook(self, name: str, parameter: nn.Parameter) -> Callable[[torch.Tensor], None]:
        def on_gradient(gradient: torch.Tensor) -> None:
            count = self.seen.get(name, 0)
            self.seen[name] = count + 1
            if count % self.interval == 0:
                self.write(name, count, parameter.detach(), gradient.detach())

        return on_gradient

    def write(self, name: str, step: int, weight: torch.Tensor, gradient: torch.Tensor) -> None:
        row = {"name": name, "step": step}
        for kind, tensor in (("weight", weight), ("gradient", gradient)):
            low, high = float(tensor.min()), float(tensor.max())
            row[kind] = {
                "low": low,
                "high": high,
                "counts": torch.histc(tensor, BINS, low, high).tolist(),
                "quantiles": tensor.flatten().sort().values[:: max(1, tensor.numel() // 32)].tolist(),
            }
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()
