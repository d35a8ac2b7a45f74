"""Range of each feature of a table of samples, over the batches that were looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from torch import Tensor

MOST_TABLES: Final = 8
MOST_FEATURES: Final = 4096
"""More are a flattened image or a vector of words."""
MOST_ELEMENTS: Final = 1 << 18
"""Of a batch that are read."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the features of one tensor so far."""

    features: int
    constant: int
    first: int
    """The first constant one; 0 where there is none."""
    value: float
    """Its value."""
    zeros: float
    """Share of zeros among the features that vary, in the newest batch."""
    samples: int
    batches: int

    def words(self, source: int, loader: int) -> tuple[int, int, int]:
        """The three words of a `FeatureRange`."""
        value = two_floats(self.value, 0.0) & 0xFFFFFFFF
        flags = source | loader << 16 | self.constant << 24 | round(self.zeros * 255) << 44
        return (
            self.first | self.features << 32, value | min(self.samples, (1 << 31) - 1) << 32,
            flags | min(self.batches, 2047) << 52,
        )  # fmt: skip


class FeatureRanges:
    """Smallest and largest value of each column of [samples, features] tensors; copies, that hold no tensor alive."""

    def __init__(self) -> None:
        self._tables: dict[Any, tuple[Tensor, Tensor, int, int]] = {}

    def add(self, key: tuple[int, str], tensor: Tensor) -> Known | None:
        """What is known with one more batch; None of a tensor that is no floating table."""
        import torch

        if tensor.dim() != 2 or not tensor.is_floating_point() or not 2 <= tensor.shape[1] <= MOST_FEATURES:
            return None
        full = *key, tensor.shape[1]
        if full not in self._tables and len(self._tables) >= MOST_TABLES:
            return None
        with torch.no_grad():
            rows = tensor.detach()
            rows = rows[:: -(-rows.numel() // MOST_ELEMENTS)].to(torch.float64)
            low, high = torch.aminmax(rows, dim=0)
            samples, batches = rows.shape[0], 1
            if full in self._tables:
                low_before, high_before, samples_before, batches_before = self._tables[full]
                low, high = torch.minimum(low, low_before), torch.maximum(high, high_before)
                samples, batches = samples + samples_before, batches + batches_before
            self._tables[full] = low, high, samples, batches
            same = low == high
            constant = int(same.count_nonzero())
            first = int(same.to(torch.uint8).argmax()) if constant else 0
            varying = rows[:, ~same]
            zeros = 1 - int(varying.count_nonzero()) / max(1, varying.numel())
        return Known(tensor.shape[1], constant, first, float(low[first]), zeros, samples, batches)
