"""The seam for a new detector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.base.finding import Finding
from rankscope.records.record import Record

MATERIAL = 0.05
"""Share of the run that a fault on some ranks must cost: below it, the fix gains less than runs differ anyway."""
MATERIAL_EVERYWHERE = 0.10
"""The same where all ranks do alike: no healthy peer shows how it should be, so more must be at stake to blame."""
SHARE_OF_WORST = 0.5
"""A rank is named beside the worst one where it has this share of what that one has; with less it is like its peers."""


class CannotExamine(Exception):
    """A detector has not got what it needs; the text says what is missing. Never the same as healthy."""


def worst_ranks(values: NDArray[Any], at_least: float = 0.0) -> tuple[int, ...]:
    """Positions of the ranks to name, given what each of them has: the worst one, and those that come near it.

    None of them has less than `at_least`.
    """
    return tuple(int(p) for p in np.flatnonzero(values >= max(at_least, SHARE_OF_WORST * float(values.max()))))


class Detector:
    """Reads the facts and yields what it finds. Holds no state, prints nothing, names one cause.

    The class's docstring is the page that `rankscope causes CODE` prints.
    """

    name: ClassVar[str]
    """The cause's code, from the catalogue."""
    needs: ClassVar[tuple[type[Record], ...]]
    """Without one of these kinds of records the run is `not examined` for this cause, not healthy."""
    any_length: ClassVar[bool] = False
    """True: also runs of a few steps can be examined."""
    inference: ClassVar[bool] = False
    """True: also runs that never train can be examined, whose steps are forward calls with any time between them."""

    def examine(self, facts: Facts) -> Iterator[Finding]:
        """Yield findings; raise `CannotExamine` where something other than `needs` is missing."""
        raise NotImplementedError
