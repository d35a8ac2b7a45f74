"""Which steps are looked at closely: the same on all ranks, without asking anybody."""

from __future__ import annotations

from typing import Final

FIRST: Final = 4
"""Steps at the start that are all sampled: most faults of wiring show there."""
AGAIN, MOST_BEGINNINGS = 3, 20
"""Steps that are sampled after a change, and how many changes are worth it."""
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
        self._dense_until = FIRST
        self._beginnings = 0

    def sampled(self, step: int) -> bool:
        return step < self._dense_until or step & (step - 1) == 0 or step % self._spacing == 0

    def begin_anew(self, step: int) -> None:
        """Sample the next steps too, as at the start: something about the training has changed at `step`."""
        if self._beginnings < MOST_BEGINNINGS:
            self._beginnings += 1
            self._dense_until = max(self._dense_until, step + AGAIN)

    def next_after(self, step: int) -> int:
        """The next sampled step after `step`."""
        if step + 1 < self._dense_until:
            return step + 1
        return min(1 << step.bit_length(), (step // self._spacing + 1) * self._spacing)

    def account(self, cost_ns: float, step_ns: float) -> None:
        """A sample took `cost_ns`, a usual step takes `step_ns`: widen the spacing until that is within the budget."""
        while self._spacing < FARTHEST and cost_ns > self._allowed * self._spacing * step_ns:
            self._spacing *= 2
