"""The optimizers of the process, numbered in the order of their first step."""

from __future__ import annotations

import weakref
from typing import Any


class Optimizers:
    """Numbers by object; keeps none alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """How many there have been."""
        return self._count

    def number(self, optimizer: Any) -> int:
        """Its number, from 1; the next free one where it is new."""
        known = self._known.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            self._count += 1
            known = self._known[id(optimizer)] = weakref.ref(optimizer), self._count
        return known[1]

    def exists(self, number: int) -> bool:
        """Whether the optimizer of this number does."""
        return any(ref() is not None for ref, known in self._known.values() if known == number)

    def alive(self) -> list[tuple[int, Any]]:
        """(number, optimizer) of those that still exist, by number."""
        found = [(number, ref()) for ref, number in self._known.values()]
        return sorted(((number, one) for number, one in found if one is not None), key=lambda pair: pair[0])

    def forget(self) -> None:
        """A forked child starts anew."""
        self._known.clear()
        self._count = 0


def learning_rate(optimizer: Any) -> float:
    """Of its first group; NaN where it is a tensor on a device, or none."""
    groups = optimizer.param_groups
    return number_of(groups[0].get("lr")) if groups else float("nan")


def number_of(value: Any) -> float:
    """A hyper-parameter as a number; NaN where reading it would wait for a device, or there is none."""
    if isinstance(value, (int, float)):
        return float(value)
    device = getattr(getattr(value, "device", None), "type", None)
    return float(value) if device == "cpu" and value.numel() == 1 else float("nan")
