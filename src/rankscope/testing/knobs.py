"""A number that may differ by rank and step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Knob = float | Mapping[int, float] | Callable[[int, int], float]
"""A number for all, a dictionary by rank (ranks that are not in it keep the usual value), or `f(rank, step)`."""


def value(knob: Knob, rank: int, step: int, usual: float = 0.0) -> float:
    """The number for one rank at one step."""
    if callable(knob):
        return knob(rank, step)
    if isinstance(knob, Mapping):
        return knob.get(rank, usual)
    return knob
