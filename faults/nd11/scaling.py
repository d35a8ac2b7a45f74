"""A loss scale that halves where gradients overflow and doubles after a long time without."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class LossScaler:
    def __init__(self, start: float, grow_after: int = 1000) -> None:
        self.scale = start
        self.grow_after = grow_after
        self.good = 0
        self.skipped = 0

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.scale

    def unscale(self, parameters: Iterable[torch.nn.Parameter]) -> bool:
        """Divides the gradients by the scale; false where one of them overflowed."""
        finite = True
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(self.scale)
                finite = finite and bool(torch.isfinite(parameter.grad).all())
        return finite

    def update(self, finite: bool) -> None:
        if not finite:
            self.scale /= 2.0
            self.good = 0
            self.skipped += 1
            return
        self.good += 1
        if self.good == self.grow_after:
            self.scale *= 2.0
            self.good = 0
