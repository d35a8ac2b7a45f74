"""Which steps are looked at closely: the same on all ranks, without asking anybody."""

from __future__ import annotations

from typing import Final

FIRST: Final = 4
"""Steps at the start that are all sampled: most faults of wiring show there."""
CLOSEST, FARTHEST = 16, 1 << 14
"""Steps between two samples, at least and at most."""
SHARE: Final = 0.25
"""Part of the budget for overhead that sampling may take in the long run."""


class Schedule:
    """Steps 0 to 3, the powers of two, and the multiples of a spacing that is a power of two.

    The spacing follows the cost. Two ranks may come to different ones; then the steps of the wider one are sampled on
    both.
    """

    def __init__(self, budget: float) -> None:
        self._allowed = budget * SHARE
        self._spacing = CLOSEST

    def sampled(self, step: int) -> bool:
        return step < FIRST or step & (step - 1) == 0 or step % self._spacing == 0

    def next_after(self, step: int) -> int:
        """The next sampled step after `step`."""
        if step + 1 < FIRST:
            return step + 1
        return min(1 << step.bit_length(), (step // self._spacing + 1) * self._spacing)

    def account(self, cost_ns: float, step_ns: float) -> None:
        """A sample took `cost_ns`, a usual step takes `step_ns`: widen the spacing until that is within the budget."""
        while self._spacing < FARTHEST and cost_ns > self._allowed * self._spacing * step_ns:
            self._spacing *= 2
