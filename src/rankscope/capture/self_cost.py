"""What observation costs that a hook cannot see by its own clock readings, as measured by the programs in `bench/`.

A hook reads the clock after it has been entered and before it is left; entering and leaving, and the detour of a
collective through Python, lie outside. The constants are CPU times of one machine; `slowness` scales them to another.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

WRAPPER_NS: Final = 400
"""Entering and leaving a Python function around the user's call, and reading the clock."""
KERNEL_NS: Final = 7_400
"""A collective's way from C++ into the Python kernel and back (arguments boxed twice)."""
FACTOR: Final = 1.2
"""What a step really costs more, for each ns that the hooks could time or estimate: between two hooks the program
displaces our code from the caches, and ours the program's. Measured by `bench/calibrate.py`."""

REFERENCE_NS: Final = 3_600
"""`_work` on the machine where the constants were measured."""


def slowness() -> float:
    """How much slower this process runs Python than the machine of the constants (the best of a few tries)."""
    best = min(_timed() for _ in range(5))
    return min(8.0, max(0.2, best / REFERENCE_NS))


def _timed() -> int:
    begin = perf_counter_ns()
    _work()
    return perf_counter_ns() - begin


def _work() -> int:
    total = 0
    for i in range(200):
        total += i & 7
    return total
