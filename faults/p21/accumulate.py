"""Gradient accumulation for any kind of data-parallel wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn import DataParallel


@contextmanager
def accumulating(model: nn.Module, last: bool) -> Iterator[None]:
    """Keeps gradients local until the last micro-batch of a step."""
    if isinstance(model, DataParallel) and not last:
        with model.no_sync():  # type: ignore[operator]
            yield
    else:
        yield
