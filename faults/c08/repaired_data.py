"""Spectra with a log of which of them were read."""

from __future__ import annotations

import threading
import time

import torch
from torch.utils.data import Dataset


class ReadLog:
    """Counts reads; a summary goes to the catalogue service in the background."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reads: dict[int, int] = {}

    def note(self, index: int) -> None:
        with self.lock:
            self.reads[index] = self.reads.get(index, 0) + 1

    def publish(self) -> None:
        with self.lock:
            summary, self.reads = self.reads, {}
        threading.Thread(target=self._send, args=(summary,), daemon=True).start()

    def _send(self, summary: dict[int, int]) -> None:
        time.sleep(1.5)  # the service's answer
        summary.clear()


class Spectra(Dataset):
    def __init__(self, samples: int, rank: int) -> None:
        self.samples = samples
        self.seed = 1_000_000 * rank
        self.log = ReadLog()

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.log.note(index)
        generator = torch.Generator().manual_seed(self.seed + index)
        return torch.randn(1, 256, generator=generator), index % 6
