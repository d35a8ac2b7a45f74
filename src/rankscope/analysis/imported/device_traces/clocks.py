"""How far apart the clocks of the ranks can be, from collectives alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.device_traces.collectives import ALL_WAIT
from rankscope.analysis.imported.device_traces.matching import Matched


@dataclass(frozen=True, slots=True)
class Clocks:
    """Offsets from the first rank's clock."""

    offset_ns: dict[int, int]
    """By position in the digests: what to take off a rank's times."""
    error_ns: int
    """None of them is off by more."""


def clocks_of(groups: Sequence[Matched]) -> Clocks | None:
    """From the group with most ranks: no rank is done with an all-reduce or the like before every rank has begun it,
    so each call bounds the offset of two clocks from both sides. None where no such call was matched."""
    usable = [group for group in groups if any(one in ALL_WAIT for one in group.operation)]
    if not usable:
        return None
    group = max(usable, key=lambda one: (len(one.members), one.start.shape[1]))
    calls = np.array([one in ALL_WAIT for one in group.operation])
    start, end = group.start[:, calls], group.end[:, calls]
    offset, error = {group.members[0]: 0}, 0
    for row, position in enumerate(group.members[1:], 1):
        low, high = int((start[row] - end[0]).max()), int((end[row] - start[0]).min())
        offset[position] = (low + high) // 2
        error = max(error, abs(high - low) // 2 + 1)
    return Clocks(offset, error)
