"""What observation costs that a hook cannot see by its own clock readings, as measured by the programs in `bench/`.

A hook reads the clock after it has been entered and before it is left; entering and leaving, and the detour of a
collective through Python, lie outside. The constants are CPU times of one machine, from warm caches; `slowness` scales
them to another machine, `whole_cost_ns` to the caches as a step leaves them.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

WRAPPER_NS: Final = 400
"""Entering and leaving a Python function around the user's call, and reading the clock."""
KERNEL_NS: Final = 7_400
"""A collective's way from C++ into the Python kernel and back (arguments boxed twice)."""
HOOK_NS: Final = 1_000
"""What a hook takes between its own two readings of the clock where its code lies in the caches: the mean of those that
a training step calls, by `bench/hooks.py`."""
COLDEST: Final = 25.0
"""Beyond that a hook was interrupted rather than slowed."""

REFERENCE_NS: Final = 3_600
"""`_work` on the machine where the constants were measured."""


def whole_cost_ns(visible_ns: int, hidden_ns: int, hooks: int, slow: float) -> int:
    """What the hooks of a step took in all: what they saw of themselves, and what they could not see.

    Between two hooks the program displaces our code from the caches. How much longer they took than they do from warm
    caches is known of the part they can see; the rest lies in the same memory, and is taken to be slowed as much.
    `slow`: how much slower than the machine of the constants this one is (`hidden_ns` is scaled by it already).
    """
    if not hooks:
        return visible_ns + hidden_ns
    cold = visible_ns / (hooks * HOOK_NS * slow)
    return visible_ns + round(hidden_ns * min(COLDEST, max(1.0, cold)))


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
